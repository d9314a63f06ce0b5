"""Windows: rounds of later instants that no decision can change.

Foreseeable steps are a closed list: the creation of pods without a node, an owner or a budget, and
the start and the end of such pods, including those of the window itself, which count as bound in
the round in which they are created. Each of them follows from the trace, the timeline and the
models alone, as long as every pod is bound; whichever node a pod gets, it starts and ends at the
same time. Anything else ends a window, as its time or its event may depend on a decision: a node's
change, a deletion, an update, usage and evictions, a controller's pod, a quota, a budget.

No step is carried out before its time: only its event is made, with the functions of the world that
make it at its time, on a draft of the pod. The cluster then takes the drafted event in place of
making it again, so that what was sent ahead and what is recorded are one object.

A window trusts the scheduler in one thing: that a pod fits the node that it is bound to. Where a
kubelet then does not admit a pod, rounds that were sent ahead are wrong and cannot be taken back:
UnforeseenRejectionError ends this attempt of the run, and the next one opens no windows.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from replay.world.ahead.admitted import AdmittedAhead
from replay.world.api import conditions
from replay.world.api.cluster import write_status
from replay.world.api.pod_record import PodRecord, patch_status
from replay.world.controller import NEVER_NS
from replay.world.kubelet.container_ends import ending, finish_ns, restarts
from replay.world.kubelet.pod_lifecycle import AdmittedPod
from replay.world.loop.replay import Replay
from replay.world.loop.rounds import EVENTS_PER_MESSAGE
from replay.world.timeline import Action, ActionKind
from reprieve.kube.v1beta1 import meta_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1.scheduler_service_pb2 import Foreseen
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.parts import PART_BYTES

_Window: TypeAlias = "RepeatedCompositeFieldContainer[Foreseen]"
_Events: TypeAlias = "RepeatedCompositeFieldContainer[scheduler_pb2.Event]"
ROUNDS_MAX = 256
EVENTS_MAX = 4096
"""The largest numbers of rounds and events of a window."""
PODS_MAX = 255
"""The largest number of pods of a foreseen instant; more need several exchanges with the queue."""
FIRST_ROUNDS = 16
"""The largest number of rounds of the first window."""
FULL = "the window was full"
END = "nothing more was planned"
NOT_BOUND = "a pod was not bound at once"
NOT_FORESEEABLE = "a pod had an owner, a budget or usage, or would be refused"


class UnforeseenRejectionError(Exception):
    """A kubelet does not admit a pod whose next steps were sent to the scheduler ahead."""


class _PlannedStep(NamedTuple):
    """A step of a pod of the window; `number` is the order of planning."""

    at_ns: int
    number: int
    kind: ActionKind
    pod: PodRecord


class _Instant(NamedTuple):
    """The inputs due at one time: records, and pods' steps (None: an action without a pod)."""

    at_ns: int
    records: list[trace_pb2.Record]
    steps: list[tuple[ActionKind, PodRecord | None]]


class _Draft(NamedTuple):
    """A pod as it will be after its foreseen steps, and the events of those to come."""

    message: pod_pb2.Pod
    ref: meta_pb2.ObjectReference
    events: deque[scheduler_pb2.Event]


class Windows:
    """Makes the window of a round: one window at a time, from `foresee` to `close`.

    `ended` counts the windows by the reason of their end.
    """

    _steps_planned: int
    _pods_ended: int
    _until_ns: int
    _size: int
    _rounds_max: int
    _end_reason: str
    ended: Counter[str]

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._cluster = replay.cluster
        self._controllers = replay.controllers
        self._lifecycle = replay.lifecycle
        self._admitted = AdmittedAhead(replay.inputs, replay.lifecycle, replay.admission)
        models = replay.models
        self._may_open = not (
            models.image_pull_ns
            or models.bind_cost_ns
            or models.cycle_cost_ns
            or models.device_ready_delay_ns
        )
        self._drafts: dict[str, _Draft] = {}
        self._planned: list[_PlannedStep] = []
        self._steps_planned = 0
        self._names: set[str] = set()
        self._pods_ended = 0
        self._until_ns = 0
        self._size = 0
        self._rounds_max = FIRST_ROUNDS
        self._end_reason = END
        self.ended = Counter()
        replay.cluster.write_status = self._write_status
        replay.lifecycle.not_admitted = self._not_admitted

    def foresee(self, now_ns: int, window: _Window) -> None:
        """Add to `window` the rounds that will follow the one of `now_ns`, which is to be sent.

        Events are made within the request: protobuf copies what is added to a message, which takes
        2.5 us for each event, and twice as long as sending it.
        """
        if not self._may_open:
            return
        pending = self._cluster.pending.values()
        rounds_max = min(self._rounds_max, ROUNDS_MAX)
        # After a window that was run in vain, one round is sent alone before the next window.
        self._rounds_max = max(1, self._rounds_max)
        if not rounds_max or not self._are_foreseeable(pending):
            return
        stop_ns, restart_ns = self._replay.stop_ns, self._replay.restart_ns
        self._drafts, self._planned, self._names, self._pods_ended = {}, [], set(), 0
        self._until_ns = NEVER_NS if stop_ns is None else stop_ns + 1
        if restart_ns is not None:
            self._until_ns = min(self._until_ns, restart_ns)
        self._end_reason = END
        rounds = count = size = 0
        for foreseen in self._rounds(now_ns, pending, window):
            size += foreseen.ByteSize()
            if size > PART_BYTES:
                self._end_reason = FULL
                break
            rounds += 1
            count += len(foreseen.confirmations) + len(foreseen.round.events)
            if rounds >= rounds_max or count >= EVENTS_MAX:
                self._end_reason = FULL
                break
        del window[rounds:]
        self._size = rounds

    def read_ahead(self) -> None:
        """Admit pods of the trace that the next window will need.

        It is done while the scheduler works on a window.
        """
        for record in itertools.islice(self._replay.source.ahead(), 2 * self._size):
            match record.WhichOneof("record"):
                case "template":
                    self._replay.inputs.add_template(record.template)
                case "pod_create":
                    self._admitted.admit(record.time_ns, record)
                case _:
                    return

    def close(self, rounds_not_run: int) -> None:
        """End the current window, if there is one.

        Windows grow while they are run as a whole, and shrink where rounds are not run.
        """
        if self._size:
            self.ended[NOT_BOUND if rounds_not_run else self._end_reason] += 1
            if rounds_not_run:
                self._rounds_max = (self._size - rounds_not_run) // 2
            else:
                self._rounds_max = max(self._rounds_max, 2 * self._size)
        self._size = 0
        self._drafts = {}

    def _not_admitted(self, pod: PodRecord) -> None:
        """Raise UnforeseenRejectionError while a window is open."""
        if self._size:
            raise UnforeseenRejectionError(
                f"the kubelet of {pod.node_name} does not admit pod {pod.key}, whose start was "
                "sent to the scheduler ahead"
            )

    # Which instants can be foreseen

    def _rounds(
        self, now_ns: int, pods: Iterable[PodRecord], window: _Window
    ) -> Iterator[Foreseen]:
        """Yield one foreseen round after the other, up to the first that cannot be foreseen.

        `pods` are those of the round at `now_ns`. Only new pods begin a round: the events of other
        instants wait for the next one. The confirmations of a round's bindings are sent with the
        round after it. What is in `window` behind the last round is not complete.
        """
        foreseen = window.add()
        self._bind(now_ns, pods, foreseen.confirmations)
        for instant in self._instants():
            new = self._new_pods(instant) if instant.at_ns > now_ns else None
            if new is None:
                return
            if instant.at_ns >= self._until_ns:
                self._end_reason = END
                return
            events = foreseen.round.events
            for admitted in new:
                events.append(admitted.event)
            for kind, pod in instant.steps:
                if pod is not None:
                    self._step(instant.at_ns, kind, pod, events)
            if len(foreseen.confirmations) + len(events) >= EVENTS_PER_MESSAGE:
                self._end_reason = FULL
                return
            if new:
                foreseen.round.time_ns = instant.at_ns
                yield foreseen
                foreseen = window.add()
                self._bind(
                    instant.at_ns, [admitted.pod for admitted in new], foreseen.confirmations
                )

    def _instants(self) -> Iterator[_Instant]:
        """Yield the next instants; steps planned meanwhile are in those that follow."""
        records, planned = self._replay.source.ahead(), self._replay.timeline.ahead()
        record, action = next(records, None), next(planned, None)
        while True:
            times = [] if record is None else [record.time_ns]
            times += [] if action is None else [action[0]]
            times += [self._planned[0].at_ns] if self._planned else []
            if not times:
                return
            at_ns = min(times)
            instant = _Instant(at_ns, [], [])
            while record is not None and record.time_ns <= at_ns:
                instant.records.append(record)
                record = next(records, None)
            while action is not None and action[0] <= at_ns:
                instant.steps.append(self._step_of(action[1]))
                action = next(planned, None)
            while self._planned and self._planned[0].at_ns <= at_ns:
                step = heapq.heappop(self._planned)
                instant.steps.append((step.kind, step.pod))
            yield instant

    def _step_of(self, action: Action) -> tuple[ActionKind, PodRecord | None]:
        is_step = action.kind in (ActionKind.START, ActionKind.FINISH)
        return action.kind, self._cluster.pods.get(action.key) if is_step else None

    def _new_pods(self, instant: _Instant) -> list[AdmittedPod] | None:
        """Return the pods that are created at an instant, None if it cannot be foreseen."""
        for kind, pod in instant.steps:
            if not self._is_step_foreseeable(instant.at_ns, kind, pod):
                self._end_reason = kind.value
                return None
        pods: list[AdmittedPod] = []
        for record in instant.records:
            match record.WhichOneof("record"):
                case "template":
                    self._replay.inputs.add_template(record.template)
                case "pod_create":
                    admitted = self._admitted.admit(instant.at_ns, record)
                    if admitted is None or not self._is_foreseeable(admitted.pod):
                        self._end_reason = NOT_FORESEEABLE
                        return None
                    pods.append(admitted)
                case other:
                    self._end_reason = f"the trace had another record: {other}"
                    return None
        if not pods:
            return pods
        if len(pods) > PODS_MAX:
            self._end_reason = FULL
            return None
        names = {admitted.pod.key for admitted in pods} | {admitted.pod.uid for admitted in pods}
        if len(names) < 2 * len(pods) or not names.isdisjoint(self._names):
            self._end_reason = NOT_FORESEEABLE
            return None
        self._names |= names
        return pods

    def _is_step_foreseeable(self, at_ns: int, kind: ActionKind, pod: PodRecord | None) -> bool:
        if pod is None or pod.is_terminating or pod.eviction is not None:
            return False
        if self._controllers.concerns(pod):
            return False
        if kind is ActionKind.START:
            is_ready_at_once = self._lifecycle.readiness.delay_ns(pod) == 0
            return finish_ns(pod.life, at_ns) != at_ns and is_ready_at_once
        self._pods_ended += 1
        acts_ns = self._controllers.wakeup_ns(at_ns, self._pods_ended)
        self._until_ns = min(self._until_ns, acts_ns)
        return not restarts(pod) and at_ns < self._until_ns

    def _are_foreseeable(self, pods: Collection[PodRecord]) -> bool:
        return len(pods) <= PODS_MAX and all(map(self._is_foreseeable, pods))

    def _is_foreseeable(self, pod: PodRecord) -> bool:
        """Return whether the events after a new pod's binding can be foreseen."""
        status = pod.message.status
        return (
            self._cluster.is_schedulable(pod)
            and not pod.node_name
            and not status.nominated_node_name
            and not status.HasField("start_time")
            and finish_ns(pod.life, self._lifecycle.start_delay_ns(0, pod)) != 0
            and self._lifecycle.readiness.delay_ns(pod) == 0
            and not self._controllers.concerns(pod)
        )

    # Their events

    def _bind(self, now_ns: int, pods: Iterable[PodRecord], events: _Events) -> None:
        """Add the events of pods after their binding, in the order of their scheduling.

        The order is that of PrioritySort, upstream's only plugin that sorts the queue: it is the
        world's one assumption about how the scheduler decides. A scheduler with another order
        stops, as for every other result, and the window was foreseen in vain.
        """
        order = sorted(pods, key=lambda pod: -pod.priority)
        for pod in order:
            bound = self._add(events, now_ns, pod, conditions.scheduled)
            bound.patch.confirms_binding.SetInParent()
        for pod in order:
            delay_ns = self._lifecycle.start_delay_ns(now_ns, pod)
            if delay_ns > 0:
                self._add(events, now_ns, pod, conditions.seen)
                self._plan(now_ns + delay_ns, ActionKind.START, pod)
            else:
                self._add(events, now_ns, pod, conditions.seen_running)
                self._plan(finish_ns(pod.life, now_ns), ActionKind.FINISH, pod)

    def _step(self, at_ns: int, kind: ActionKind, pod: PodRecord, events: _Events) -> None:
        if kind is ActionKind.FINISH:
            self._add(events, at_ns, pod, ending(pod.life))
        else:
            self._plan(finish_ns(pod.life, at_ns), ActionKind.FINISH, pod)
            self._add(events, at_ns, pod, conditions.running)

    def _plan(self, at_ns: int | None, kind: ActionKind, pod: PodRecord) -> None:
        if at_ns is not None:
            self._steps_planned += 1
            heapq.heappush(self._planned, _PlannedStep(at_ns, self._steps_planned, kind, pod))

    def _add(
        self, events: _Events, at_ns: int, pod: PodRecord, write: conditions.Write
    ) -> scheduler_pb2.Event:
        """Add the event of a pod's later step, and keep it for the time of the step."""
        draft = self._drafts.get(pod.uid)
        if draft is None:
            draft = self._drafts[pod.uid] = _Draft(pod_pb2.Pod(), pod.session_ref(), deque())
            draft.message.CopyFrom(pod.message)
        write(at_ns, draft.message)
        event = events.add(time_ns=at_ns)
        patch_status(event.patch, draft.ref, draft.message)
        draft.events.append(event)
        return event

    def _write_status(
        self, now_ns: int, pod: PodRecord, write: conditions.Write | None
    ) -> scheduler_pb2.Event:
        """Write a pod's status, which has been drafted where its step was foreseen."""
        draft = self._drafts.get(pod.uid)
        if draft is None or not draft.events:
            return write_status(now_ns, pod, write)
        event = draft.events.popleft()
        pod.message.status.CopyFrom(event.patch.status)
        pod.message.metadata.resource_version = event.patch.resource_version
        return event
