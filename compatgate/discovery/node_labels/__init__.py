"""Kubernetes nodes as their labels describe them.

GPU Feature Discovery (GFD) writes which GPUs and which driver a node has, Node Feature Discovery
(NFD) that there is an NVIDIA device at all.

Source: NVIDIA/k8s-device-plugin ``docs/gpu-feature-discovery`` and ``internal/lm`` (which labels
there are, with and without MIG strategy and sharing).
"""

from __future__ import annotations

from compatgate.discovery.node_labels.pools import NodePools, pools_of_nodes
from compatgate.discovery.node_labels.read import Node, read_nodes

__all__ = ["Node", "NodePools", "pools_of_nodes", "read_nodes"]
