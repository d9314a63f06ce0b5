"""Image pulls: a node has the images that its status lists and those that it has pulled.

A node pulls one image after the other, each in the same time, and keeps it. The pull is not written
to the node's status, so ImageLocality scores by the images of the trace.

Source: kubernetes v1.34 pkg/kubelet/images/image_manager.go, EnsureImageExists; puller.go,
serialImagePuller.
"""

from __future__ import annotations

from replay.world.api.cluster import Cluster
from replay.world.part import Part
from reprieve.kube.v1beta1 import pod_pb2


class ImagePulls(Part):
    """Computes when a pod's images are on its node; one image takes `pull_ns`."""

    _there_ns: dict[str, dict[str, int]]
    _free_ns: dict[str, int]

    def __init__(self, cluster: Cluster, pull_ns: int) -> None:
        super().__init__()
        self._cluster = cluster
        self._pull_ns = pull_ns

    def ready_ns(self, now_ns: int, pod: pod_pb2.Pod) -> int:
        """Pull a pod's missing images and return when the last of them is pulled, ns."""
        if not self._pull_ns:
            return now_ns
        name = pod.spec.node_name
        pulled = self._there_ns.setdefault(name, {})
        held = self._held(name)
        ready_ns = now_ns
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            image = _tagged(container.image)
            if not container.image or image in held:
                continue
            if image not in pulled:
                begin_ns = max(now_ns, self._free_ns.get(name, now_ns))
                pulled[image] = self._free_ns[name] = begin_ns + self._pull_ns
            ready_ns = max(ready_ns, pulled[image])
        return ready_ns

    def forget(self, node_name: str) -> None:
        """Drop the pulled images of a node that was deleted."""
        self._there_ns.pop(node_name, None)
        self._free_ns.pop(node_name, None)

    def _held(self, node_name: str) -> set[str]:
        node = self._cluster.nodes.get(node_name)
        images = node.status.images if node is not None else ()
        return {_tagged(name) for image in images for name in image.names}


def _tagged(name: str) -> str:
    """Return an image's name with its tag, "latest" where it has neither a tag nor a digest."""
    return name if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:latest"
