"""Container images in the cluster: which nodes hold them, and how large they are.

An image's size is that of the node which first brought it while others hold it too, as
upstream's cache keeps it.

Source: kubernetes v1.34 pkg/scheduler/backend/cache/cache.go, addNodeImageStates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.kube.node import ContainerImage


@dataclass(slots=True)
class ImageState:
    """One image name: its size, and the rows of the nodes that hold it, in order of arrival."""

    size_bytes: int
    rows: dict[int, None] = field(default_factory=dict)


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
                state = self._by_name.setdefault(name, ImageState(image.size_bytes))
                state.rows[row] = None

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
