"""Read and write other projects' files about GPU nodes.

AICR snapshots and recipes, the objects of the GPU Operator, and image-compatibility specs of Node
Feature Discovery (NFD): docs/how-to/integrations.md lists the fields that are read and the
unknowns.
"""
