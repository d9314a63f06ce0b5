"""What the scheduler knows of its queue: a mirror of the nominations, and who is gated.

The queue is the record of nominations; the filters need them at every node, so the scheduler
follows what the queue does with each step that it is told. Pods that a PreEnqueue plugin holds are
kept out of queues that know no gates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from services.kube.pod import Pod
from services.scheduler.core.nominations import Nominations
from services.scheduler.core.queue_steps import (
    QueueAdd,
    QueueDelete,
    QueueOperation,
    QueueStep,
    QueueUpdate,
)
from services.scheduler.core.rules import QueueRules


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
