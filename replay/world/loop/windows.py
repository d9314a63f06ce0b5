"""Windows: rounds of later moments that no decision can change, foreseen and sent ahead.

What is foreseen is a closed list: pods that come without a node, an owner or a budget, and the
start and the end of such pods, those of the window itself among them, which count as bound in the
round in which they come. Anything else ends a window. Nothing of it is carried out before its time:
only the events are made, and the same events are recorded when its time comes.

This is conservative lookahead: the scheduler goes from round to round for as long as every pod is
bound, and what was foreseen beyond that is dropped. (K. M. Chandy, J. Misra, Asynchronous
distributed simulation via a sequence of parallel computations, 1981.)
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from replay.world.api import conditions
from replay.world.api.cluster import Cluster
from replay.world.api.pod_record import PodRecord, status_event
from replay.world.controllers.taint_eviction import NEVER_NS
from replay.world.kubelet.pod_lifecycle import Admitted, Lives, ending, finish_ns, goes_on
from replay.world.loop.inputs import Inputs
from replay.world.loop.rounds import EVENTS_PER_MESSAGE
from replay.world.timeline import Action, Kind, Timeline
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.parts import PART_BYTES

ROUNDS_MAX = 256
EVENTS_MAX = 4096
"""How many rounds and events a window has at the most."""
PODS_MAX = 255
"""How many pods may come at one moment: more than one exchange with the queue shows cost enough."""
FIRST_ROUNDS = 16
"""How many rounds the first window has at the most."""
FULL = "it was full"
END = "nothing more was to come"
NOT_BOUND = "a pod was not bound at once"
LOOKED_AT = "a pod came with an owner, a budget or usage, or cannot be taken"


class _Coming(NamedTuple):
    """What a pod of the window will do; `number` is the order of planning."""

    at_ns: int
    number: int
    kind: Kind
    pod: PodRecord


class _Moment(NamedTuple):
    """What is due at one time: records, and the steps of pods, None for other actions."""

    at_ns: int
    records: list[trace_pb2.Record]
    steps: list[tuple[Kind, PodRecord | None]]


class Windows:
    """Foresees what comes after a round.

    `is_plain` tells whether nothing in the world looks at a pod but its kubelet, and `collects_ns`
    when pods that have ended are collected once so many more have at a time. `ended` counts the
    windows by what ended them.
    """

    def __init__(
        self,
        cluster: Cluster,
        timeline: Timeline,
        lives: Lives,
        inputs: Inputs,
        *,
        is_plain: Callable[[PodRecord], bool],
        collects_ns: Callable[[int, int], int],
    ) -> None:
        self._cluster = cluster
        self._timeline = timeline
        self._lives = lives
        self._inputs = inputs
        self._is_plain = is_plain
        self._collects_ns = collects_ns
        self._drafts: dict[str, pod_pb2.Pod] = {}
        self._drafted: list[PodRecord] = []
        self._coming: list[_Coming] = []
        self._numbers = itertools.count()
        self._names: set[str] = set()
        self._ended = 0
        self._until_ns = 0
        self._size = 0
        self._most = FIRST_ROUNDS
        self._why = END
        self.ended: Counter[str] = Counter()

    def foresee(
        self, now_ns: int, records: Iterator[trace_pb2.Record], until_ns: int | None
    ) -> list[scheduler_service_pb2.Foreseen]:
        """Return the rounds that will follow the one that is about to be told, none where unknown.

        `records` are those that are still to come; nothing after `until_ns` is foreseen.
        """
        bound = self._cluster.pending.values()
        most, self._most = min(self._most, ROUNDS_MAX), max(1, self._most)
        if not most or len(bound) > PODS_MAX or not all(map(self._may_be_bound, bound)):
            return []
        self._drafts, self._coming, self._names, self._ended = {}, [], set(), 0
        self._until_ns = NEVER_NS if until_ns is None else until_ns + 1
        self._why = END
        window: list[scheduler_service_pb2.Foreseen] = []
        events: list[scheduler_pb2.Event] = []
        confirmations = self._bind(now_ns, bound)
        count = size = 0
        for moment in self._moments(records):
            pods = self._settled(moment) if moment.at_ns > now_ns else None
            if pods is None:
                break
            if moment.at_ns >= self._until_ns:
                self._why = END
                break
            events += [admitted.event for admitted in pods]
            events += [
                self._step(moment.at_ns, kind, pod) for kind, pod in moment.steps if pod is not None
            ]
            if len(confirmations) + len(events) >= EVENTS_PER_MESSAGE:
                self._why = FULL
                break
            if not pods:
                continue
            foreseen = scheduler_service_pb2.Foreseen(confirmations=confirmations)
            foreseen.round.at_ns = moment.at_ns
            foreseen.round.events.extend(events)
            size += foreseen.ByteSize()
            if size > PART_BYTES:
                self._why = FULL
                break
            window.append(foreseen)
            count += len(confirmations) + len(events)
            if len(window) >= most or count >= EVENTS_MAX:
                self._why = FULL
                break
            confirmations = self._bind(moment.at_ns, [admitted.pod for admitted in pods])
            events = []
        self._size = len(window)
        return window

    def read_on(self, records: Iterator[trace_pb2.Record]) -> None:
        """Read pods of the trace that the next window will ask for."""
        for record in itertools.islice(records, 2 * self._size):
            match record.WhichOneof("record"):
                case "template":
                    self._inputs.learn(record.template)
                case "pod_create":
                    self._inputs.foresee(record.at_ns, record)
                case _:
                    return

    def close(self, left: int) -> None:
        """Forget what was foreseen and has not come to be: `left` rounds of the last window.

        Windows grow while they are run whole, and shrink where much was foreseen in vain.
        """
        if self._size:
            self.ended[NOT_BOUND if left else self._why] += 1
            self._most = (self._size - left) // 2 if left else max(self._most, 2 * self._size)
        self._size = 0
        for pod in self._drafted:
            pod.foreseen = None
        self._drafted = []

    # What is settled

    def _moments(self, records: Iterator[trace_pb2.Record]) -> Iterator[_Moment]:
        """Yield the moments to come; a pod's coming steps are asked for when each is."""
        planned = self._timeline.ahead()
        record, action = next(records, None), next(planned, None)
        while True:
            times = [] if record is None else [record.at_ns]
            times += [] if action is None else [action[0]]
            times += [self._coming[0].at_ns] if self._coming else []
            if not times:
                return
            at_ns = min(times)
            moment = _Moment(at_ns, [], [])
            while record is not None and record.at_ns <= at_ns:
                moment.records.append(record)
                record = next(records, None)
            while action is not None and action[0] <= at_ns:
                moment.steps.append(self._step_of(action[1]))
                action = next(planned, None)
            while self._coming and self._coming[0].at_ns <= at_ns:
                coming = heapq.heappop(self._coming)
                moment.steps.append((coming.kind, coming.pod))
            yield moment

    def _step_of(self, action: Action) -> tuple[Kind, PodRecord | None]:
        is_step = action.kind in (Kind.START, Kind.FINISH)
        return action.kind, self._cluster.pods.get(action.key) if is_step else None

    def _settled(self, moment: _Moment) -> list[Admitted] | None:
        """Return the pods that come at a moment which no decision can change, None for another."""
        for kind, pod in moment.steps:
            if not self._is_settled(moment.at_ns, kind, pod):
                self._why = kind.value
                return None
        pods: list[Admitted] = []
        for record in moment.records:
            match record.WhichOneof("record"):
                case "template":
                    self._inputs.learn(record.template)
                case "pod_create":
                    admitted = self._inputs.foresee(moment.at_ns, record)
                    if admitted is None or not self._may_be_bound(admitted.pod):
                        self._why = LOOKED_AT
                        return None
                    pods.append(admitted)
                case told:
                    self._why = f"the trace tells of something else: {told}"
                    return None
        if len(pods) > PODS_MAX:
            self._why = FULL
            return None
        names = {admitted.pod.key for admitted in pods} | {admitted.pod.uid for admitted in pods}
        if len(names) < 2 * len(pods) or not names.isdisjoint(self._names):
            self._why = LOOKED_AT
            return None
        self._names |= names
        return pods

    def _is_settled(self, at_ns: int, kind: Kind, pod: PodRecord | None) -> bool:
        if pod is None or pod.is_terminating or pod.eviction is not None:
            return False
        if not self._is_plain(pod):
            return False
        if kind is Kind.START:
            return finish_ns(pod.life, at_ns) != at_ns
        self._ended += 1
        collected_ns = self._collects_ns(at_ns, self._ended)
        self._until_ns = min(self._until_ns, collected_ns)
        return not goes_on(pod) and at_ns < self._until_ns

    def _may_be_bound(self, pod: PodRecord) -> bool:
        """Tell whether all that follows from the binding of a pod that has just come is known."""
        status = pod.message.status
        return (
            self._cluster.is_schedulable(pod)
            and not pod.node_name
            and not status.nominated_node_name
            and not status.HasField("start_time")
            and finish_ns(pod.life, self._lives.start_delay_ns(0, pod)) != 0
            and self._is_plain(pod)
        )

    # What it brings

    def _bind(self, now_ns: int, pods: Iterable[PodRecord]) -> list[scheduler_pb2.Event]:
        """Return what the world will say of pods that are bound, in the order of their taking."""
        order = sorted(pods, key=lambda pod: -pod.priority)
        events = []
        for pod in order:
            bound = self._drawn(now_ns, pod, conditions.scheduled)
            bound.patch.node_name = ""
            events.append(bound)
        for pod in order:
            delay_ns = self._lives.start_delay_ns(now_ns, pod)
            if delay_ns > 0:
                events.append(self._drawn(now_ns, pod, conditions.seen))
                self._plan(now_ns + delay_ns, Kind.START, pod)
            else:
                events.append(self._drawn(now_ns, pod, conditions.seen_running))
                self._plan(finish_ns(pod.life, now_ns), Kind.FINISH, pod)
        return events

    def _step(self, at_ns: int, kind: Kind, pod: PodRecord) -> scheduler_pb2.Event:
        if kind is Kind.FINISH:
            return self._drawn(at_ns, pod, ending(pod.life))
        self._plan(finish_ns(pod.life, at_ns), Kind.FINISH, pod)
        return self._drawn(at_ns, pod, conditions.running)

    def _plan(self, at_ns: int | None, kind: Kind, pod: PodRecord) -> None:
        if at_ns is not None:
            heapq.heappush(self._coming, _Coming(at_ns, next(self._numbers), kind, pod))

    def _drawn(self, at_ns: int, pod: PodRecord, write: conditions.Write) -> scheduler_pb2.Event:
        """Return the event of a step that a pod will take, which is kept until it does."""
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
