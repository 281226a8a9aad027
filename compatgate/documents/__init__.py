"""Read and write Targets, Entries and Waivers as YAML or JSON, and convert them to core objects.

Reading: `sources` (files, folders, standard input) -> `text` (YAML with line numbers) -> `read`
(schema and meaning, every problem at once) -> `specs` (typed documents) -> `convert` (core).
Writing: `text`. Differences: `specs`. No database here.
"""
