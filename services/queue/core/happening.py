"""A cluster event with the objects that it is about, as a queueing hint sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from services.queue.core.cluster_event import ClusterEvent, event_of
from services.queue.core.pod import QueuedPod

_NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """What happened, to which object.

    `old` is None for what came and `new` for what went; both are None where nobody told, or
    where no hint reads them. `namespace_labels` are those of the object's namespace, for
    affinity terms that select namespaces. `source` is opaque here: from it the edge makes the
    objects again when a checkpoint is restored.
    """

    event: ClusterEvent
    old: object | None = None
    new: object | None = None
    namespace_labels: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS)
    source: bytes = b""


HintFunction = Callable[[QueuedPod, Happening], bool]
"""Whether a plugin that refused the pod may let it pass after this. False skips the event.

A hint that cannot tell answers True, as upstream takes a hint's error for one.
"""


def happened(label: str, old: object | None = None, new: object | None = None) -> Happening:
    """Return the event called `label` with its objects."""
    return Happening(event=event_of(label), old=old, new=new)
