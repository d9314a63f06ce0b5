"""The queue against a naive model: one flat list of entries, searched and sorted each time.

The model knows v1.20's rules, and v1.16's backoff by name, and nothing of heaps, indexes or
snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.framework.cluster_event import ObjectEvent
from services.kube.time import SECOND_NS
from services.queue.core.queued_pod import (
    FailedPod,
    Failure,
    InFlightPod,
    PopId,
    QueuedPod,
    QueuedPodInfo,
)
from services.queue.core.results import AlreadyPresent, NotNext, Requeued, WouldBlock
from services.queue.core.rules.versions import QueueConfig
from services.queue.core.scheduling_queue import SchedulingQueue
from tests.property.queue_machines import run

INITIAL_NS, MAX_NS = SECOND_NS, 10 * SECOND_NS
ACTIVE, BACKOFF, UNSCHEDULABLE = "active", "backoff", "unschedulable"
PREFERENCE = (UNSCHEDULABLE, ACTIVE, BACKOFF)

pod_names = st.sampled_from("abcdef")
priorities = st.integers(min_value=-2, max_value=2)
versions = st.integers(min_value=0, max_value=2)


@dataclass(frozen=True, kw_only=True)
class Row:
    """An entry of the model, in `where`."""

    where: str
    pod: QueuedPod
    timestamp_ns: int
    initial_ns: int
    attempts: int
    sequence: int


def wait_ns(attempts: int) -> int:
    """Return how long a backoff is, doubled step by step."""
    waits_ns = INITIAL_NS
    for _ in range(attempts - 1):
        waits_ns = min(waits_ns * 2, MAX_NS)
    return waits_ns


def row_of(where: str, pod_info: QueuedPodInfo) -> Row:
    """Return a real entry as a model's row."""
    return Row(
        where=where,
        pod=pod_info.pod,
        timestamp_ns=pod_info.timestamp_ns,
        initial_ns=pod_info.initial_attempt_ns or 0,
        attempts=pod_info.attempts,
        sequence=pod_info.sequence,
    )


class QueueMachine(RuleBasedStateMachine):
    """Do the same to a queue and to the model."""

    mode: ClassVar[str] = "v1.20"

    def __init__(self) -> None:
        super().__init__()
        self.config = QueueConfig(version=self.mode)
        self.queue = SchedulingQueue(self.config)
        self.rows: list[Row] = []
        self.in_flight: dict[PopId, Row] = {}
        self.pods: dict[str, QueuedPod] = {}
        self.now_ns = 0
        self.cycle = 0
        self.move_cycle = -1
        self.sequence = 0

    # What happens to pods.

    @initialize(count=st.integers(min_value=0, max_value=6))
    def start(self, count: int) -> None:
        """Begin with some pods."""
        for name in "abcdef"[:count]:
            self.add(name, 0)

    @rule(name=pod_names, priority=priorities)
    def add(self, name: str, priority: int) -> None:
        """Create a pod."""
        pod = self.version_of(name, priority, 0)
        self.queue.add(pod, now_ns=self.now_ns)
        self.rows = [row for row in self.rows if row.pod.name != name]
        self.rows.append(self.fresh(pod))

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), priority=priorities, version=versions)
    def update(self, data: st.DataObject, priority: int, version: int) -> None:
        """Change a pod, or its status alone."""
        name = data.draw(st.sampled_from(sorted(self.pods)))
        old = self.pods[name]
        new = self.version_of(name, priority, version)
        where = self.queue.update(old, new, now_ns=self.now_ns)
        for wanted in (ACTIVE, BACKOFF, UNSCHEDULABLE):
            row = self.find(wanted, name)
            if row is not None:
                self.rows.remove(row)
                stays = wanted == UNSCHEDULABLE and old.digest == new.digest
                if wanted == UNSCHEDULABLE and not stays:
                    self.forget(name)
                self.rows.append(replace(row, pod=new, where=UNSCHEDULABLE if stays else ACTIVE))
                assert where == self.rows[-1].where
                return
        self.rows.append(self.fresh(new))

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """Delete a pod."""
        name = data.draw(st.sampled_from(sorted(self.pods)))
        self.queue.delete(self.pods.pop(name).ref, now_ns=self.now_ns)
        active = self.find(ACTIVE, name)
        gone = [active] if active else [row for row in self.rows if row.pod.name == name]
        if not active:
            self.forget(name)
        self.rows = [row for row in self.rows if row not in gone]

    # Scheduling cycles.

    @rule()
    def pop(self) -> None:
        """Begin a cycle."""
        self.began(self.queue.pop(now_ns=self.now_ns))

    @rule(stale=st.booleans())
    def commit(self, stale: bool) -> None:
        """Commit the head, or a pop that is not next."""
        heads = self.queue.heads(1)
        if not heads:
            return
        head = heads[0]
        if stale:
            before = self.queue.snapshot()
            refused = self.queue.commit_pop(PopId("?", head.cycle), now_ns=self.now_ns)
            assert refused == NotNext(next=head)
            assert replace(self.queue.snapshot(), now_ns=before.now_ns) == before
            return
        outcome = self.queue.commit_pop(head.id, now_ns=self.now_ns)
        assert isinstance(outcome, InFlightPod)
        self.began(outcome)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        """End a cycle with a failure."""
        self.give_back(data.draw(st.sampled_from(sorted(self.in_flight))))

    @rule(moved=st.booleans(), waits_ms=st.sampled_from([0, 1000]))
    def refuse(self, moved: bool, waits_ms: int) -> None:
        """Fail a whole cycle: most transitions need refused pods."""
        before = set(self.in_flight)
        self.pop()
        if moved:
            self.move_all()
        self.wait(waits_ms)
        for pop_id in sorted(set(self.in_flight) - before):
            self.give_back(pop_id)

    @rule(count=st.integers(1, 4))
    def refuse_the_next(self, count: int) -> None:
        """Let several cycles fail in one operation; a copy does it by two operations each."""
        heads, copy = self.queue.heads(count), self.queue
        self.queue = SchedulingQueue.restore(self.config, copy.snapshot())
        failed = [FailedPod(head.pod.uid, Failure()) for head in heads]
        for head in heads:
            outcome = self.queue.commit_pop(head.id, now_ns=self.now_ns)
            assert isinstance(outcome, InFlightPod)
            self.began(outcome)
            self.give_back(head.id)
        committed = copy.commit_unschedulable(
            failed, first_cycle=self.cycle + 1 - len(heads), now_ns=self.now_ns
        )
        assert isinstance(committed, AlreadyPresent) or committed == len(heads)
        assert copy.snapshot() == self.queue.snapshot()

    def give_back(self, pop_id: PopId) -> None:
        """End a pop with a failure."""
        row = self.in_flight.pop(pop_id)
        outcome = self.queue.add_unschedulable(pop_id, now_ns=self.now_ns)
        places = {held.where for held in self.rows if held.pod.name == row.pod.name}
        if places:
            assert isinstance(outcome, AlreadyPresent)
            assert outcome.queue == next(place for place in PREFERENCE if place in places)
            return
        self.failed(row.pod.name)
        where = BACKOFF if self.move_cycle >= pop_id.cycle else UNSCHEDULABLE
        assert isinstance(outcome, Requeued)
        assert outcome.queue == where
        self.rows.append(
            replace(row, where=where, timestamp_ns=self.now_ns, sequence=self.next_sequence())
        )

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        """End a cycle well."""
        pop_id = data.draw(st.sampled_from(sorted(self.in_flight)))
        del self.in_flight[pop_id]
        self.queue.done(pop_id)

    # Time and the cluster.

    @rule(ms=st.sampled_from([1, 500, 1000, 5000, 30_000]))
    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.now_ns += ms * 1_000_000

    @rule()
    def flush_backoff(self) -> None:
        """Tick the second."""
        self.queue.flush_backoff(now_ns=self.now_ns)
        self.rows = [
            replace(row, where=ACTIVE)
            if row.where == BACKOFF and self.expiry_ns(row) <= self.now_ns
            else row
            for row in self.rows
        ]

    @rule()
    def flush_leftover(self) -> None:
        """Tick the half minute."""
        self.queue.flush_leftover(now_ns=self.now_ns)
        minute_ago_ns = self.now_ns - 60 * SECOND_NS
        leftover = [
            row
            for row in self.rows
            if row.where == UNSCHEDULABLE and row.timestamp_ns < minute_ago_ns
        ]
        if leftover:
            self.move(leftover)

    @rule()
    def move_all(self) -> None:
        """Send a cluster event."""
        moved = self.queue.move_all(ObjectEvent.of("NodeAdd"), now_ns=self.now_ns)
        unschedulable = [row for row in self.rows if row.where == UNSCHEDULABLE]
        assert moved == len(unschedulable)
        self.move(unschedulable)

    @rule()
    def crash(self) -> None:
        """Lose the queue and go on from its checkpoint."""
        self.queue = SchedulingQueue.restore(self.config, self.queue.snapshot())

    # What must hold.

    @invariant()
    def no_entry_is_lost_or_doubled(self) -> None:
        """Compare the sub-queues with the model's entries, each there once, in order."""
        state = self.queue.snapshot()
        assert [row_of(ACTIVE, pod_info) for pod_info in state.active] == self.in_pop_order()
        expected = [(self.expiry_ns(row), row) for row in self.rows if row.where == BACKOFF]
        expected.sort(key=lambda ends: (ends[0], ends[1].sequence))
        backing_off = [(pod.expiry_ns, row_of(BACKOFF, pod.pod_info)) for pod in state.backoff]
        if self.mode == "v1.16":  # what is known of a name may go while its pod backs off
            backing_off.sort(key=lambda ends: (ends[0], ends[1].sequence))
        assert backing_off == expected
        unschedulable = [row for row in self.rows if row.where == UNSCHEDULABLE]
        unschedulable.sort(key=lambda row: row.sequence)
        assert [
            row_of(UNSCHEDULABLE, pod_info) for pod_info in state.unschedulable
        ] == unschedulable
        assert (state.scheduling_cycle, state.move_request_cycle) == (self.cycle, self.move_cycle)

    @invariant()
    def an_entry_stands_in_one_sub_queue(self) -> None:
        """Entries are identified by their order of arrival."""
        state = self.queue.snapshot()
        backing_off = [waiting.pod_info for waiting in state.backoff]
        pod_infos = [*state.active, *backing_off, *state.unschedulable]
        assert len({pod_info.sequence for pod_info in pod_infos}) == len(pod_infos)

    @invariant()
    def no_pop_has_two_holders(self) -> None:
        """Each pop in flight is there once."""
        ids = [popped.id for popped in self.queue.snapshot().in_flight]
        assert len(ids) == len(set(ids))
        assert set(ids) == set(self.in_flight)

    @invariant()
    def the_heads_are_what_pops_return(self) -> None:
        """On a restored copy, for every count up to all of them."""
        copy = SchedulingQueue.restore(self.config, self.queue.snapshot())
        heads = self.queue.heads(len(self.rows) + 1)
        assert [copy.pop(now_ns=self.now_ns) for _ in heads] == heads
        assert copy.pop(now_ns=self.now_ns) == WouldBlock()
        for count in range(len(heads)):
            assert self.queue.heads(count) == heads[:count]

    @invariant()
    def a_wake_up_moves_something_and_nothing_moves_before(self) -> None:
        """Try the flushes on restored copies; a tick at this very moment may be over already."""
        wakeup_ns = self.queue.next_wakeup_ns(self.now_ns)
        assert (wakeup_ns is None) == all(row.where == ACTIVE for row in self.rows)
        if wakeup_ns is None:
            return
        assert self.flushed_at(wakeup_ns) > 0
        previous_ns = wakeup_ns - SECOND_NS
        if previous_ns > self.now_ns:
            assert self.flushed_at(previous_ns) == 0

    def flushed_at(self, tick_ns: int) -> int:
        """Return how many pods a copy's flushes would move at this tick."""
        copy = SchedulingQueue.restore(self.config, self.queue.snapshot())
        moved = copy.flush_backoff(now_ns=tick_ns)
        return moved + (0 if tick_ns % (30 * SECOND_NS) else copy.flush_leftover(now_ns=tick_ns))

    # The model's own parts.

    def expiry_ns(self, row: Row) -> int:
        """Return the end of a row's backoff."""
        return row.timestamp_ns + wait_ns(row.attempts)

    def failed(self, name: str) -> None:
        """Note a failure of the pod's name, where there is a backoff by name."""

    def forget(self, name: str) -> None:
        """Drop the backoff of the pod's name."""

    def began(self, outcome: object) -> None:
        """Remove the model's next pod, as the queue has done."""
        order = self.in_pop_order()
        if not order:
            assert outcome == WouldBlock()
            return
        row = order[0]
        self.rows.remove(row)
        self.cycle += 1
        popped = replace(row, attempts=row.attempts + 1)
        assert isinstance(outcome, InFlightPod)
        assert (outcome.pod, outcome.cycle) == (popped.pod, self.cycle)
        assert (outcome.attempts, outcome.timestamp_ns) == (popped.attempts, row.timestamp_ns)
        self.in_flight[outcome.id] = popped

    def move(self, rows: list[Row]) -> None:
        """Move unschedulable rows to activeQ or backoffQ."""
        for row in rows:
            self.rows.remove(row)
            waits = self.expiry_ns(row) > self.now_ns
            self.rows.append(replace(row, where=BACKOFF if waits else ACTIVE))
        self.move_cycle = self.cycle

    def in_pop_order(self) -> list[Row]:
        """Return the active rows as they would be popped."""
        active = [row for row in self.rows if row.where == ACTIVE]
        return sorted(active, key=lambda row: (-row.pod.priority, row.timestamp_ns, row.sequence))

    def find(self, where: str, name: str) -> Row | None:
        """Return the row of a name in a sub-queue."""
        rows = [row for row in self.rows if (row.where, row.pod.name) == (where, name)]
        assert len(rows) <= 1
        return rows[0] if rows else None

    def fresh(self, pod: QueuedPod) -> Row:
        """Return the row of a pod that is new to the queue."""
        return Row(
            where=ACTIVE,
            pod=pod,
            timestamp_ns=self.now_ns,
            initial_ns=self.now_ns,
            attempts=0,
            sequence=self.next_sequence(),
        )

    def next_sequence(self) -> int:
        """Count an arrival."""
        self.sequence += 1
        return self.sequence

    def version_of(self, name: str, priority: int, version: int) -> QueuedPod:
        """Build a pod and keep it as the name's last version."""
        pod = QueuedPod(
            uid=f"uid-{name}",
            namespace="ns",
            name=name,
            priority=priority,
            digest=f"{priority} {version}".encode(),
        )
        self.pods[name] = pod
        return pod


class NamesMachine(QueueMachine):
    """The same with v1.16's backoff by name: failures so far, and when the last one was."""

    mode = "v1.16"

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, tuple[int, int]] = {}

    def expiry_ns(self, row: Row) -> int:
        """Return the end of the name's backoff; 0 for a name without failures."""
        attempts, updated_ns = self.names.get(row.pod.name, (0, 0))
        return updated_ns + wait_ns(attempts) if attempts else 0

    def failed(self, name: str) -> None:
        """Count a failure, unless a backoff runs or ends now; drop old names."""
        self.names = {
            item: known for item, known in self.names.items() if known[1] + MAX_NS >= self.now_ns
        }
        attempts, updated_ns = self.names.get(name, (0, 0))
        if attempts == 0 or updated_ns + wait_ns(attempts) < self.now_ns:
            self.names[name] = (attempts + 1, self.now_ns)

    def forget(self, name: str) -> None:
        """Start over with the name."""
        self.names.pop(name, None)

    @invariant()
    def names_are_remembered_alike(self) -> None:
        """Failures and the time of the last one, by name."""
        known = self.queue.snapshot().name_backoffs
        assert {pod.key[1]: (pod.attempts, pod.updated_ns) for pod in known} == self.names


def test_v1_20_agrees_with_a_flat_list() -> None:
    """Some thousands of steps."""
    run(QueueMachine, examples=100)


def test_v1_16_agrees_with_a_flat_list() -> None:
    """Some thousands of steps."""
    run(NamesMachine, examples=100)
