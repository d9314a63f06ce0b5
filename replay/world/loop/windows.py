"""Windows: rounds of later instants that no decision can change, sent ahead to the scheduler.

Only these steps are foreseen: the creation of pods without a node, an owner or a budget, and the
start and the end of such pods, including those of the window itself, which count as bound in the
round in which they are created. Anything else ends a window. No step is carried out before its
time: only its events are made, and the same events are recorded at its time.

This is conservative look-ahead: the scheduler goes from round to round for as long as every pod is
bound, and rounds beyond that are dropped.
Source: K. M. Chandy, J. Misra, Asynchronous distributed simulation via a sequence of parallel
computations, 1981.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from replay.world.api import conditions
from replay.world.api.pod_record import PodRecord, status_event
from replay.world.controller import NEVER_NS
from replay.world.kubelet.container_ends import ending, finish_ns, restarts
from replay.world.kubelet.pod_lifecycle import AdmittedPod, PodLifecycle
from replay.world.loop.inputs import RecordFeed
from replay.world.loop.rounds import EVENTS_PER_MESSAGE
from replay.world.state import WorldState
from replay.world.timeline import Action, ActionKind
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.parts import PART_BYTES

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


class _PlannedStep(NamedTuple):
    """A step of a pod of the window; `number` is the order of planning."""

    at_ns: int
    number: int
    kind: ActionKind
    pod: PodRecord


class _Instant(NamedTuple):
    """What is due at one time: records, and pods' steps (None: an action without a pod)."""

    at_ns: int
    records: list[trace_pb2.Record]
    steps: list[tuple[ActionKind, PodRecord | None]]


class Windows:
    """Makes the window of a round.

    `concerns` returns whether a controller may act on a pod, `wakeup_ns` when one would act if more
    pods had ended by a time. `ended` counts the windows by the reason of their end.
    """

    _steps_planned: int
    _ended: int
    _until_ns: int
    _size: int
    _rounds_max: int
    _end_reason: str
    ended: Counter[str]

    def __init__(
        self,
        state: WorldState,
        lifecycle: PodLifecycle,
        inputs: RecordFeed,
        *,
        concerns: Callable[[PodRecord], bool],
        wakeup_ns: Callable[[int, int], int],
    ) -> None:
        self._cluster = state.cluster
        self._timeline = state.timeline
        self._lifecycle = lifecycle
        self._inputs = inputs
        self._concerns = concerns
        self._wakeup_ns = wakeup_ns
        self._drafts: dict[str, pod_pb2.Pod] = {}
        self._drafted: list[PodRecord] = []
        self._planned: list[_PlannedStep] = []
        self._steps_planned = 0
        self._names: set[str] = set()
        self._ended = 0
        self._until_ns = 0
        self._size = 0
        self._rounds_max = FIRST_ROUNDS
        self._end_reason = END
        self.ended = Counter()

    def foresee(
        self, now_ns: int, records: Iterator[trace_pb2.Record], until_ns: int | None
    ) -> list[scheduler_service_pb2.Foreseen]:
        """Return the rounds that will follow the one that is about to be sent.

        `records` are the next records of the trace; nothing after `until_ns` is foreseen.
        """
        bound = self._cluster.pending.values()
        rounds_max = min(self._rounds_max, ROUNDS_MAX)
        self._rounds_max = max(1, self._rounds_max)
        if not rounds_max or len(bound) > PODS_MAX or not all(map(self._is_foreseeable, bound)):
            return []
        self._drafts, self._planned, self._names, self._ended = {}, [], set(), 0
        self._until_ns = NEVER_NS if until_ns is None else until_ns + 1
        self._end_reason = END
        window: list[scheduler_service_pb2.Foreseen] = []
        events: list[scheduler_pb2.Event] = []
        confirmations = self._bind(now_ns, bound)
        count = size = 0
        for instant in self._instants(records):
            pods = self._new_pods(instant) if instant.at_ns > now_ns else None
            if pods is None:
                break
            if instant.at_ns >= self._until_ns:
                self._end_reason = END
                break
            events += [admitted.event for admitted in pods]
            events += [
                self._step(instant.at_ns, kind, pod)
                for kind, pod in instant.steps
                if pod is not None
            ]
            if len(confirmations) + len(events) >= EVENTS_PER_MESSAGE:
                self._end_reason = FULL
                break
            if not pods:
                continue
            foreseen = scheduler_service_pb2.Foreseen(confirmations=confirmations)
            foreseen.round.at_ns = instant.at_ns
            foreseen.round.events.extend(events)
            size += foreseen.ByteSize()
            if size > PART_BYTES:
                self._end_reason = FULL
                break
            window.append(foreseen)
            count += len(confirmations) + len(events)
            if len(window) >= rounds_max or count >= EVENTS_MAX:
                self._end_reason = FULL
                break
            confirmations = self._bind(instant.at_ns, [admitted.pod for admitted in pods])
            events = []
        self._size = len(window)
        return window

    def read_ahead(self, records: Iterator[trace_pb2.Record]) -> None:
        """Admit pods of the trace that the next window will need."""
        for record in itertools.islice(records, 2 * self._size):
            match record.WhichOneof("record"):
                case "template":
                    self._inputs.add_template(record.template)
                case "pod_create":
                    self._inputs.admit_ahead(record.at_ns, record)
                case _:
                    return

    def close(self, left: int) -> None:
        """End the last window, of which the scheduler did not run `left` rounds.

        Windows grow while they are run as a whole, and shrink where rounds are left.
        """
        if self._size:
            self.ended[NOT_BOUND if left else self._end_reason] += 1
            if left:
                self._rounds_max = (self._size - left) // 2
            else:
                self._rounds_max = max(self._rounds_max, 2 * self._size)
        self._size = 0
        for pod in self._drafted:
            pod.foreseen = None
        self._drafted = []

    # Which instants can be foreseen

    def _instants(self, records: Iterator[trace_pb2.Record]) -> Iterator[_Instant]:
        """Yield the next instants; steps planned meanwhile are in those that follow."""
        planned = self._timeline.ahead()
        record, action = next(records, None), next(planned, None)
        while True:
            times = [] if record is None else [record.at_ns]
            times += [] if action is None else [action[0]]
            times += [self._planned[0].at_ns] if self._planned else []
            if not times:
                return
            at_ns = min(times)
            instant = _Instant(at_ns, [], [])
            while record is not None and record.at_ns <= at_ns:
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
        """Return the pods that are created at an instant, None where it cannot be foreseen."""
        for kind, pod in instant.steps:
            if not self._is_step_foreseeable(instant.at_ns, kind, pod):
                self._end_reason = kind.value
                return None
        pods: list[AdmittedPod] = []
        for record in instant.records:
            match record.WhichOneof("record"):
                case "template":
                    self._inputs.add_template(record.template)
                case "pod_create":
                    admitted = self._inputs.admit_ahead(instant.at_ns, record)
                    if admitted is None or not self._is_foreseeable(admitted.pod):
                        self._end_reason = NOT_FORESEEABLE
                        return None
                    pods.append(admitted)
                case other:
                    self._end_reason = f"the trace had another record: {other}"
                    return None
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
        if self._concerns(pod):
            return False
        if kind is ActionKind.START:
            is_ready_at_once = self._lifecycle.readiness.delay_ns(pod) == 0
            return finish_ns(pod.life, at_ns) != at_ns and is_ready_at_once
        self._ended += 1
        self._until_ns = min(self._until_ns, self._wakeup_ns(at_ns, self._ended))
        return not restarts(pod) and at_ns < self._until_ns

    def _is_foreseeable(self, pod: PodRecord) -> bool:
        """Return whether the events after the binding of a new pod can be foreseen."""
        status = pod.message.status
        return (
            self._cluster.is_schedulable(pod)
            and not pod.node_name
            and not status.nominated_node_name
            and not status.HasField("start_time")
            and finish_ns(pod.life, self._lifecycle.start_delay_ns(0, pod)) != 0
            and self._lifecycle.readiness.delay_ns(pod) == 0
            and not self._concerns(pod)
        )

    # Their events

    def _bind(self, now_ns: int, pods: Iterable[PodRecord]) -> list[scheduler_pb2.Event]:
        """Return the events of pods after their binding, in the order of their scheduling."""
        order = sorted(pods, key=lambda pod: -pod.priority)
        events = []
        for pod in order:
            bound = self._event(now_ns, pod, conditions.scheduled)
            bound.patch.node_name = ""
            events.append(bound)
        for pod in order:
            delay_ns = self._lifecycle.start_delay_ns(now_ns, pod)
            if delay_ns > 0:
                events.append(self._event(now_ns, pod, conditions.seen))
                self._plan(now_ns + delay_ns, ActionKind.START, pod)
            else:
                events.append(self._event(now_ns, pod, conditions.seen_running))
                self._plan(finish_ns(pod.life, now_ns), ActionKind.FINISH, pod)
        return events

    def _step(self, at_ns: int, kind: ActionKind, pod: PodRecord) -> scheduler_pb2.Event:
        if kind is ActionKind.FINISH:
            return self._event(at_ns, pod, ending(pod.life))
        self._plan(finish_ns(pod.life, at_ns), ActionKind.FINISH, pod)
        return self._event(at_ns, pod, conditions.running)

    def _plan(self, at_ns: int | None, kind: ActionKind, pod: PodRecord) -> None:
        if at_ns is not None:
            self._steps_planned += 1
            heapq.heappush(self._planned, _PlannedStep(at_ns, self._steps_planned, kind, pod))

    def _event(self, at_ns: int, pod: PodRecord, write: conditions.Write) -> scheduler_pb2.Event:
        """Return the event of a pod's later step, and keep it for the time of the step."""
        draft = self._drafts.get(pod.uid)
        if draft is None:
            draft = self._drafts[pod.uid] = pod_pb2.Pod()
            draft.CopyFrom(pod.message)
            self._drafted.append(pod)
        write(at_ns, draft)
        event = status_event(at_ns, draft)
        pod.foreseen = pod.foreseen or deque()
        pod.foreseen.append(event)
        return event
