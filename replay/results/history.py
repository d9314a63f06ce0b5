"""The cluster as the scheduler was told of it, rebuilt from a run's history.

What the API server of the replay held is what its watchers were told: objects that were added,
changed, patched and deleted, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from google.protobuf.message import Message

from reprieve.kube.v1alpha1 import object_pb2, pod_pb2
from reprieve.scheduler.v1alpha1 import scheduler_pb2
from services.rpc.kube_kinds import apply_patch

Key = tuple[str, str, str]
"""Kind, namespace and name of an object."""


class Verb(Enum):
    """What happened to an object, in a watch's words."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change:
    """An object that has changed at `at_ns` (ns since the Unix epoch).

    `message` is the object as it is now, or as it last was; the next change of the same object may
    change it in place.
    """

    at_ns: int
    verb: Verb
    key: Key
    message: Message


class ClusterHistory:
    """The objects at the moment up to which events were taken; `objects` is by kind and name."""

    def __init__(self) -> None:
        self.objects: dict[Key, Message] = {}
        self._pod_keys: dict[str, Key] = {}

    def take(self, event: scheduler_pb2.Event) -> Change | None:
        """Apply an event and return what it changed, None where that is nothing."""
        match event.WhichOneof("event"):
            case "add":
                return self._put(event.at_ns, event.add)
            case "update":
                return self._put(event.at_ns, event.update)
            case "patch":
                return self._patch(event.at_ns, event.patch)
            case "delete":
                reference = event.delete
                key = (reference.kind, reference.namespace, reference.name)
                message = self.objects.pop(key, None)
                self._pod_keys.pop(reference.uid, None)
                return Change(event.at_ns, Verb.DELETED, key, message) if message else None
        return None

    def _put(self, at_ns: int, holder: object_pb2.Object) -> Change | None:
        case = holder.WhichOneof("object")
        if case is None:
            return None
        message = getattr(holder, case)
        meta = message.metadata
        key = (message.DESCRIPTOR.name, meta.namespace, meta.name)
        verb = Verb.MODIFIED if key in self.objects else Verb.ADDED
        self.objects[key] = message
        if case == "pod":
            self._pod_keys[meta.uid] = key
        return Change(at_ns, verb, key, message)

    def _patch(self, at_ns: int, patch: scheduler_pb2.PodPatch) -> Change | None:
        key = self._pod_keys.get(patch.pod.uid)
        if key is None:
            return None
        pod = self.objects[key]
        assert isinstance(pod, pod_pb2.Pod)  # noqa: S101 - a pod's key leads to a pod
        apply_patch(pod, patch)
        return Change(at_ns, Verb.MODIFIED, key, pod)


def changes(rounds: Iterable[scheduler_pb2.Round]) -> Iterator[Change]:
    """Yield every change of a history, in order."""
    history = ClusterHistory()
    for round_ in rounds:
        for event in round_.events:
            change = history.take(event)
            if change is not None:
                yield change
