"""The data of a comparison: a recording's changes as events, its decisions, and cluster states.

A position is an index into the events. The events are in the recording's order: by resourceVersion
for watches, as logged for audit logs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum

from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from services.kube.pod import TERMINAL_PHASES


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """One change of one object. `old` None: the object was added; `new` None: it was deleted.

    `at_ns` is since the Unix epoch (0 for the first list), and never decreases. `matters`: whether
    a scheduler's decision can depend on the change; false for heartbeats and messages.
    """

    at_ns: int
    version: str
    ref: ObjectReference
    old: KubernetesObject | None
    new: KubernetesObject | None
    matters: bool

    @property
    def key(self) -> tuple[str, ...]:
        """Return the identity of the object: a pod's UID; otherwise kind, namespace and name."""
        if self.ref.kind == "Pod":
            return (self.ref.uid,)
        return self.ref.kind, self.ref.namespace, self.ref.name


class DecisionKind(Enum):
    """The kind of a decision."""

    BIND = "bind"
    PREEMPTION = "preemption"
    FAILURE = "failure"
    EVICTION = "eviction"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedScores:
    """The scores of a binding in the recorded scheduler's log; absent fields are -1 or empty.

    `rank` is the binding's index in the log.
    """

    rank: int
    feasible: int = -1
    top: int = -1
    tied_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDecision:
    """One decision: a binding, victims chosen on a node, or an attempt that found no node.

    written: the position of the event that shows the decision. position: the position of the first
    event that the decision can have caused; the decision was made in the state before that event.
    message: of the attempt or the kubelet, "" if unknown. victims: sorted names; None: not
    recorded. unknown: resources whose changes before the decision may be missing from the
    recording, for example because of a gap. writes: the positions of the events before a binding in
    which the scheduler allocated and reserved the pod's claims for devices.
    """

    kind: DecisionKind
    pod: ObjectReference
    written: int
    position: int
    at_ns: int
    version: str
    node: str = ""
    message: str = ""
    victims: tuple[str, ...] | None = None
    scored: LoggedScores | None = None
    unknown: str = ""
    writes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recording; `kinds` are the kinds of its objects.

    `has_order`: whether a log gives the order of its bindings. `notes`: skipped parts, with the
    reason.
    """

    events: Sequence[RecordedEvent]
    decisions: Sequence[RecordedDecision]
    kubernetes_version: str
    has_order: bool
    notes: Sequence[str]
    kinds: Set[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A pod and the cluster in which it is evaluated.

    `objects` has no pending pods; `nominated` has the pending pods with a nominated node.
    `terminating` has the UIDs of pods in `objects` that are being deleted.
    """

    objects: Sequence[KubernetesObject]
    nominated: Sequence[Pod]
    pod: Pod
    terminating: Set[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """The events that a scheduler has seen: all events before `position` that are not `unseen`.

    The object of an unseen event stays as it was before that event, and its later events are
    ignored. `assumed` (nodes by pod UID) and `undecided` (pods without a node) override the events.
    """

    position: int
    assumed: Mapping[str, str]
    undecided: Set[str] = frozenset()
    unseen: Sequence[int] = ()


class RecordedState:
    """All objects after the events before `position`.

    With a pod's node, assumed or undecided, go its claims' devices: `decisions` have their writes.
    """

    def __init__(
        self, events: Sequence[RecordedEvent], decisions: Sequence[RecordedDecision] = ()
    ) -> None:
        self._events = events
        self._writes = {
            decision.pod.uid: decision.writes for decision in decisions if decision.writes
        }
        self._objects: dict[tuple[str, ...], KubernetesObject] = {}
        self._terminating: set[str] = set()
        self.position = 0

    def advance(self, position: int) -> None:
        """Apply the events before `position`; an earlier position has no effect."""
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
        """Return a pod's priority; 0 if the pod has none or does not exist."""
        pod = self.pod(uid)
        return pod.spec.priority if pod is not None else 0

    def is_pending(self, uid: str) -> bool:
        """Return whether the pod exists, has no node and has not ended."""
        pod = self.pod(uid)
        return (
            pod is not None and not pod.spec.node_name and pod.status.phase not in TERMINAL_PHASES
        )

    def pod(self, uid: str) -> Pod | None:
        """Return a pod; None if it does not exist."""
        held = self._objects.get((uid,))
        return held.pod if held is not None else None

    def neighbours(self, pod: Pod) -> list[Pod]:
        """Return the other pods on a pod's node, including ended ones."""
        return [
            held.pod
            for held in self._objects.values()
            if held.HasField("pod")
            and held.pod.spec.node_name == pod.spec.node_name
            and held.pod.metadata.uid != pod.metadata.uid
        ]

    def cluster(self, uid: str, visibility: Visibility) -> ClusterView | None:
        """Return the cluster in which pod `uid` is evaluated; None if it does not exist."""
        position = visibility.position
        objects = dict(self._objects)
        for event in reversed(self._events[position : self.position]):
            _put(objects, event.key, event.old)
        for event in self._events[self.position : position]:
            _put(objects, event.key, event.new)
        for place in sorted(visibility.unseen, reverse=True):
            _put(objects, self._events[place].key, self._events[place].old)
        self._put_claims(objects, visibility, uid)
        evaluated = objects.pop((uid,), None)
        if evaluated is None:
            return None
        pod = Pod()
        pod.CopyFrom(evaluated.pod)
        pod.spec.ClearField("node_name")
        kept, nominated = list[KubernetesObject](), list[Pod]()
        for held in objects.values():
            if held.WhichOneof("object") != "pod":
                kept.append(held)
            elif held.pod.metadata.uid in visibility.undecided:
                continue
            elif held.pod.spec.node_name or held.pod.metadata.uid in visibility.assumed:
                kept.append(_on_node(held, visibility.assumed))
            elif held.pod.status.nominated_node_name:
                nominated.append(held.pod)
        return ClusterView(
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

    def _put_claims(
        self, objects: dict[tuple[str, ...], KubernetesObject], visibility: Visibility, uid: str
    ) -> None:
        """Allocate the claims of assumed pods, and give back those of undecided ones."""
        assumed, undecided = list[int](), list[int]()
        for pod_uid, writes in self._writes.items():
            if pod_uid == uid or pod_uid in visibility.undecided:
                undecided += [place for place in writes if place < visibility.position]
            elif pod_uid in visibility.assumed:
                assumed += [place for place in writes if place >= visibility.position]
        for place in sorted(assumed):
            _put(objects, self._events[place].key, self._events[place].new)
        for place in sorted(undecided, reverse=True):
            event = self._events[place]
            if objects.get(event.key) is event.new:
                _put(objects, event.key, event.old)


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
