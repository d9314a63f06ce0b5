"""Detects nodes with GPUs, and pods that request GPUs.

A cloud marks the nodes that have, or will have, a GPU with a label of its own. The device itself is
an extended resource, which appears only when its driver is installed.

Source: kubernetes/autoscaler 1.36 utils/gpu/gpu.go.
"""

from __future__ import annotations

from services.kube.node import Node
from services.kube.pod import PodSpec
from services.kube.requests import requested_names

NVIDIA = "nvidia.com/gpu"
VENDOR_RESOURCES = (
    NVIDIA,
    "habana.ai/gaudi",
    "gpu.intel.com/xe",
    "amd.com/gpu",
    "microsoft.com/directx",
)


def allocatable_gpus(node: Node) -> int:
    """Return how many GPUs of the first vendor that it has any of a node has; 0 for none."""
    amounts = (node.allocatable.get(resource, 0) for resource in VENDOR_RESOURCES)
    return next((amount for amount in amounts if amount), 0)


def gpu_resource(node: Node) -> str:
    """Return the resource of a node's GPUs.

    Source: DetectNodeGPUResourceName.
    """
    for resource in VENDOR_RESOURCES:
        if node.allocatable.get(resource, 0):
            return resource
    return NVIDIA


def requests_gpu(spec: PodSpec) -> bool:
    """Return whether a pod requests a GPU, even if it asks for none of them."""
    names = set(requested_names(spec))
    return any(resource in names for resource in VENDOR_RESOURCES)
