"""What the scheduler knows of its queue: nominations, gated pods, and pods that wait.

The queue is the record of nominations; the filters need them at every node, so the scheduler
follows what the queue does with each step that it is told. Pods that a PreEnqueue plugin holds are
kept out of queues that know no gates.

The pods that wait to be scheduled, and which of them an event may move.

Counted are those that pods elsewhere may let in, and those that wait for an event at all: what was
tried and given back, and what a PreEnqueue plugin holds. The queue alone knows where they stand;
this is enough to tell that nobody listens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from services.kube.pod import Pod
from services.scheduler.core.queueing.rules import QueueRules
from services.scheduler.core.queueing.steps import (
    ClusterEvent,
    QueueAdd,
    QueueDelete,
    QueueOperation,
    QueueStep,
    QueueUpdate,
)
from services.scheduler.core.snapshot.nominations import Nominations


class QueueMirror:
    """Follows one queue; `gate_of` names the PreEnqueue plugin that holds a pod, "" for none."""

    def __init__(
        self, nominations: Nominations, rules: QueueRules, gate_of: Callable[[Pod], str]
    ) -> None:
        self._nominations = nominations
        self._rules = rules
        self._gate_of = gate_of
        self._held: set[str] = set()

    def follow(self, operations: Iterable[QueueOperation]) -> list[QueueStep]:
        """Return what the queue is told of these operations, having followed each."""
        steps: list[QueueStep] = []
        for operation in operations:
            match operation:
                case QueueAdd(pod=pod):
                    steps += self._add(pod)
                case QueueUpdate(old=old, new=new):
                    steps += self._update(operation, old, new)
                case QueueDelete(pod=pod):
                    steps += self._delete(operation, pod)
                case _:
                    steps.append(operation)
        return steps

    @property
    def held(self) -> Sequence[str]:
        """Return the uids of the pods that are kept out of the queue, in their order."""
        return sorted(self._held)

    def hold(self, uids: Iterable[str]) -> None:
        """Keep pods out of the queue, as another mirror held them."""
        self._held.update(uids)

    def given_back(self, pod: Pod) -> None:
        """Follow AddUnschedulable: in the older modes only the status' nomination stays."""
        if self._rules.renominates_from_status:
            self._put(pod, pod.nominated_node_name)

    def _add(self, pod: Pod) -> list[QueueStep]:
        gate = self._gate_of(pod)
        if gate and not self._rules.has_gates:
            self._held.add(pod.uid)
            return []
        if pod.nominated_node_name:
            self._nominations.put(pod, pod.nominated_node_name)
        return [QueueAdd(pod=pod, gates=(gate,) if gate else ())]

    def _update(self, operation: QueueUpdate, old: Pod, new: Pod) -> list[QueueStep]:
        """Follow an update: one without any nomination in it keeps the one in memory.

        Source: kubernetes v1.34 pkg/scheduler/backend/queue/nominator.go, UpdateNominatedPod.
        """
        if new.uid in self._held:
            self._held.discard(new.uid)
            return self._add(new)
        named = old.nominated_node_name or new.nominated_node_name
        self._put(new, new.nominated_node_name if named else self._nominations.node_of(new.uid))
        gate = self._gate_of(new) if self._rules.has_gates else ""
        return [replace(operation, gates=(gate,)) if gate else operation]

    def _delete(self, operation: QueueDelete, pod: Pod) -> list[QueueStep]:
        self._nominations.drop(pod.uid)
        if pod.uid in self._held:
            self._held.discard(pod.uid)
            return []
        return [operation]

    def _put(self, pod: Pod, node_name: str) -> None:
        if node_name:
            self._nominations.put(pod, node_name)
        else:
            self._nominations.drop(pod.uid)


_OF_PODS_ON_NODES = (ClusterEvent.ASSIGNED_POD_ADD, ClusterEvent.ASSIGNED_POD_UPDATE)


class Waiting:
    """The pending pods of our profiles, with or without a decision that waits for its answer."""

    __slots__ = ("_listening", "_listening_for_pods", "_pods", "_waiting_for_pods")

    def __init__(self) -> None:
        self._pods: dict[str, bool] = {}
        self._waiting_for_pods = 0
        self._listening: dict[str, bool] = {}
        self._listening_for_pods = 0

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._pods)

    @property
    def any_for_pods(self) -> bool:
        """Tell whether one of them may come to fit because of a pod that comes to a node."""
        return self._waiting_for_pods > 0

    def hears(self, event: ClusterEvent, *, in_flight: bool) -> bool:
        """Tell whether an event may move one of them; an attempt taken back listens, too.

        `in_flight` tells that a decision waits for its answer. Pods that come to nodes and change
        there move those alone that look beyond single nodes: no other plugin registers for such an
        event, and who was given back without a plugin's name backs off whatever happens.
        """
        if event in _OF_PODS_ON_NODES and not self._any_listens_for_pods:
            return False
        return bool(self._listening) or in_flight

    def reads(self, event: ClusterEvent) -> bool:
        """Tell whether a hint about one of them may read what an event is about.

        Pods that come to nodes and change there concern nobody but those that look beyond single
        nodes; what frees resources concerns all.
        """
        if event in _OF_PODS_ON_NODES:
            return self._any_listens_for_pods
        return bool(self._pods)

    @property
    def _any_listens_for_pods(self) -> bool:
        return self._waiting_for_pods > 0 or self._listening_for_pods > 0

    def uids(self) -> Sequence[str]:
        """Return who they are."""
        return tuple(self._pods)

    def items(self) -> Sequence[tuple[str, bool]]:
        """Return who they are, and whether pods elsewhere may let each in, as last counted."""
        return tuple(self._pods.items())

    def listening(self) -> Sequence[tuple[str, bool]]:
        """Return who of them listens, and whether for pods elsewhere."""
        return tuple(self._listening.items())

    def count(self, uid: str, *, for_pods: bool) -> None:
        """Count a pod anew, `for_pods` if pods that come or change elsewhere may let it in."""
        self._waiting_for_pods += for_pods - self._pods.get(uid, False)
        self._pods[uid] = for_pods

    def listens(self, uid: str, *, for_pods: bool) -> None:
        """Note that an event may move a pod from now on, `for_pods` if pods elsewhere are why."""
        before = self._listening.get(uid, False)
        self._listening[uid] = before or for_pods
        self._listening_for_pods += for_pods and not before

    def drop(self, uid: str) -> None:
        """Count a pod no longer; an unknown one is passed over."""
        self._waiting_for_pods -= self._pods.pop(uid, False)
        self._listening_for_pods -= self._listening.pop(uid, False)
