"""What a recording holds for a comparison: every change as an event, and every decision in it.

A position is an index into the events, which stand in the recording's order (by resourceVersion
for watches, as logged for audit logs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum

from replay.importers.recording.survey import TERMINAL
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """One change of one object. `old` None: it came; `new` None: it went.

    `at_ns` is since 1970 (0 for the first list), never before the event before it. `matters` tells
    whether a scheduler could decide otherwise for it; heartbeats and messages do not matter.
    """

    at_ns: int
    version: str
    ref: ObjectReference
    old: KubernetesObject | None
    new: KubernetesObject | None
    matters: bool

    @property
    def key(self) -> tuple[str, ...]:
        """Return what tells its object from others."""
        if self.ref.kind == "Pod":
            return (self.ref.uid,)
        return self.ref.kind, self.ref.namespace, self.ref.name


class Kind(Enum):
    """What was decided."""

    BIND = "bind"
    PREEMPTION = "preemption"
    FAILURE = "failure"
    EVICTION = "eviction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What a scheduler's own log told of a binding; -1 and empty where it did not.

    `rank` is its place among the log's bindings, from 0.
    """

    rank: int
    feasible: int = -1
    top: int = -1
    tied_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDecision:
    """One decision: a binding, victims chosen on a node, or an attempt that found no node.

    `written` is the position of the event that tells it, `position` that of the first event that
    it can have caused: the decision was taken in a state before that one. `message` is what the
    attempt (or the kubelet) wrote, "" where it is not known. `victims` are names, sorted; None: not
    recorded.
    """

    kind: Kind
    pod: ObjectReference
    written: int
    position: int
    at_ns: int
    version: str
    node: str = ""
    message: str = ""
    victims: tuple[str, ...] | None = None
    scored: Scored | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recording, read.

    `notes` say what could not be read or is passed over, `kinds` are those of its objects.
    """

    events: Sequence[RecordedEvent]
    decisions: Sequence[RecordedDecision]
    kubernetes_version: str
    has_order: bool
    notes: Sequence[str]
    kinds: Set[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What a scheduler is asked in: objects without pending pods, nominated pods, and the pod.

    `terminating` are the UIDs of pods among `objects` that are being deleted.
    """

    objects: Sequence[KubernetesObject]
    nominated: Sequence[Pod]
    pod: Pod
    terminating: Set[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What of a recording counts as seen: the events before `position`, but not the `unseen` ones.

    The object of an unseen event stands as it was before it, whatever happened to it later.
    `assumed` are pods by UID that count as being on a node whatever the events say, `undecided` are
    pods that count as being on none.
    """

    position: int
    assumed: Mapping[str, str]
    undecided: Set[str] = frozenset()
    unseen: Sequence[int] = ()


class RecordedState:
    """All objects after the events before `position`."""

    def __init__(self, events: Sequence[RecordedEvent]) -> None:
        self._events = events
        self._objects: dict[tuple[str, ...], KubernetesObject] = {}
        self._terminating: set[str] = set()
        self.position = 0

    def advance(self, position: int) -> None:
        """Take the events before `position`; never backwards."""
        for event in self._events[self.position : position]:
            _put(self._objects, event.key, event.new)
            if event.ref.kind == "Pod":
                if event.new is not None and event.new.pod.metadata.HasField("deletion_timestamp"):
                    self._terminating.add(event.ref.uid)
                else:
                    self._terminating.discard(event.ref.uid)
        self.position = max(position, self.position)

    @property
    def terminating(self) -> Set[str]:
        """Return the UIDs of pods that are being deleted."""
        return self._terminating

    def priority(self, uid: str) -> int:
        """Return a pod's priority, 0 where it has none or is not there."""
        pod = self.pod(uid)
        return pod.spec.priority if pod is not None else 0

    def is_pending(self, uid: str) -> bool:
        """Tell whether a pod is there that has neither a node nor an end."""
        pod = self.pod(uid)
        return pod is not None and not pod.spec.node_name and pod.status.phase not in TERMINAL

    def pod(self, uid: str) -> Pod | None:
        """Return a pod, None where it is not there."""
        held = self._objects.get((uid,))
        return held.pod if held is not None else None

    def neighbours(self, pod: Pod) -> list[Pod]:
        """Return the other pods on a pod's node, ended ones too."""
        return [
            held.pod
            for held in self._objects.values()
            if held.HasField("pod")
            and held.pod.spec.node_name == pod.spec.node_name
            and held.pod.metadata.uid != pod.metadata.uid
        ]

    def cluster(self, uid: str, sight: Sight) -> Cluster | None:
        """Return what a scheduler sees that looks at pod `uid`; None where it was not there."""
        position = sight.position
        objects = dict(self._objects)
        for event in reversed(self._events[position : self.position]):
            _put(objects, event.key, event.old)
        for event in self._events[self.position : position]:
            _put(objects, event.key, event.new)
        for place in sorted(sight.unseen, reverse=True):
            _put(objects, self._events[place].key, self._events[place].old)
        judged = objects.pop((uid,), None)
        if judged is None:
            return None
        pod = Pod()
        pod.CopyFrom(judged.pod)
        pod.spec.ClearField("node_name")
        kept, nominated = list[KubernetesObject](), list[Pod]()
        for held in objects.values():
            if held.WhichOneof("object") != "pod":
                kept.append(held)
            elif held.pod.metadata.uid in sight.undecided:
                continue
            elif held.pod.spec.node_name or held.pod.metadata.uid in sight.assumed:
                kept.append(_on_node(held, sight.assumed))
            elif held.pod.status.nominated_node_name:
                nominated.append(held.pod)
        return Cluster(
            objects=kept,
            nominated=nominated,
            pod=pod,
            terminating=frozenset(
                held.pod.metadata.uid
                for held in kept
                if held.WhichOneof("object") == "pod"
                and held.pod.metadata.HasField("deletion_timestamp")
            ),
        )


def _on_node(held: KubernetesObject, assumed: Mapping[str, str]) -> KubernetesObject:
    if held.pod.spec.node_name:
        return held
    moved = KubernetesObject()
    moved.CopyFrom(held)
    moved.pod.spec.node_name = assumed[held.pod.metadata.uid]
    return moved


def _put(
    objects: dict[tuple[str, ...], KubernetesObject],
    key: tuple[str, ...],
    value: KubernetesObject | None,
) -> None:
    if value is None:
        objects.pop(key, None)
    else:
        objects[key] = value
