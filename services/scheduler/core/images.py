"""Container images in the cluster: which nodes hold them, and how large they are.

Where nodes report different sizes under one name, the largest counts. Upstream's cache keeps the
size that came first, so that its scores follow from history; ours follow from the nodes alone,
since a restored snapshot has to score like the one it was taken of.

Source: kubernetes v1.34 pkg/scheduler/backend/cache/cache.go, addNodeImageStates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.kube.node import ContainerImage


@dataclass(slots=True)
class ImageState:
    """One image name: what it takes on each node that holds it, in bytes by row."""

    rows: dict[int, int] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Return the size that counts."""
        return max(self.rows.values())


class Images:
    """Image states by name; `epoch` grows with every change."""

    __slots__ = ("_by_name", "epoch")

    def __init__(self) -> None:
        self._by_name: dict[str, ImageState] = {}
        self.epoch = 0

    def state(self, name: str) -> ImageState | None:
        """Return the state of an image, None where no node holds it."""
        return self._by_name.get(name)

    def by_name(self) -> Mapping[str, ImageState]:
        """Return every state."""
        return self._by_name

    def hold(self, row: int, images: Iterable[ContainerImage]) -> None:
        """Record that a node holds `images`."""
        self.epoch += 1
        for image in images:
            for name in image.names:
                rows = self._by_name.setdefault(name, ImageState()).rows
                rows[row] = max(rows.get(row, 0), image.size_bytes)

    def release(self, row: int, images: Iterable[ContainerImage]) -> None:
        """Record that a node no longer holds `images`."""
        self.epoch += 1
        for image in images:
            for name in image.names:
                self._drop(name, row)

    def _drop(self, name: str, row: int) -> None:
        state = self._by_name.get(name)
        if state is None:
            return
        state.rows.pop(row, None)
        if not state.rows:
            del self._by_name[name]
