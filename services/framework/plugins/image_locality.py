"""ImageLocality: prefers nodes that already hold the pod's images.

An image counts with its size, scaled by the share of all nodes that hold it.

Source: kubernetes v1.34 plugins/imagelocality/image_locality.go.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from services.framework.columns.columns import Int64s
from services.framework.columns.kernels import NODE_SCORE_MAX
from services.framework.plugin import Scope, ScorePlugin
from services.framework.snapshot.snapshot import Snapshot
from services.kube.pod import Pod

_MEBIBYTE = 1024 * 1024
_LEAST_BYTES = 23 * _MEBIBYTE
_MOST_BYTES_PER_CONTAINER = 1000 * _MEBIBYTE

Images = tuple[str, ...]


class ImageLocality(ScorePlugin[Images]):
    """Scores by the bytes of the pod's images that a node holds."""

    name = "ImageLocality"
    scope = Scope.NODE
    has_pre_score = False

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return the images of all containers; this plugin never returns Skip."""
        return _images(pod)

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> Images:  # noqa: ARG002 - unused
        return _images(pod)

    def score(self, data: Images, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        states = [state for image in data if (state := snapshot.images.state(image)) is not None]
        if not states:
            scores[rows] = 0
            return
        most = max(_MOST_BYTES_PER_CONTAINER * len(data), _LEAST_BYTES)
        held = np.zeros(snapshot.columns.capacity, dtype=np.int64)
        for state in states:
            spread = float(len(state.rows)) / float(snapshot.node_count)
            held[list(state.rows)] += min(int(float(state.size_bytes) * spread), most)
        above = np.clip(held[rows], _LEAST_BYTES, most) - _LEAST_BYTES
        span = _MOST_BYTES_PER_CONTAINER * len(data) - _LEAST_BYTES
        scores[rows] = NODE_SCORE_MAX * above // span

    def score_epoch(self, snapshot: Snapshot) -> int:
        """Return the epoch of the images, which follow from the number of nodes, too."""
        return snapshot.images.epoch


def _images(pod: Pod) -> Images:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return tuple(_tagged(container.image) for container in containers)


def _tagged(name: str) -> str:
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
