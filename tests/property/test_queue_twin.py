"""The queue's mode v1.34 against its naive twin, under every setting of its feature gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.framework.cluster_event import ObjectEvent, PendingPod, Registration, event_of
from services.kube.pod import PodSpec
from services.kube.time import SECOND_NS
from services.queue.core.queued_pod import (
    FailedPod,
    Failure,
    InFlightPod,
    PopId,
    QueuedPod,
    QueuedPodInfo,
)
from services.queue.core.results import AlreadyPresent, NotNext, WouldBlock
from services.queue.core.rules.versions import QueueConfig
from services.queue.core.scheduling_queue import SchedulingQueue
from tests.property.queue_machines import run
from tests.property.queue_twin import Stay, Twin

PLUGINS = ("Nodes", "Volumes", "Own", "Gate", "Later")
EVENTS = ("NodeAdd", "PvAdd", "ServiceAdd", "NodeDelete")
INTEREST = {
    "NodeAdd": {"Nodes", "Volumes"},
    "PvAdd": {"Volumes"},
    "NodeDelete": {"Gate"},
    "UnschedulablePodUpdatePodLabel": {"Own"},
    "UnschedulablePodUpdatePodSchedulingGatesEliminated": {"Gate"},
    "UnschedulableTimeout": set(PLUGINS),
    "ForceActivate": set(PLUGINS),
}
names = st.sampled_from("abcd")
owners = st.sampled_from(["one", "two"])
refusers = st.sets(st.sampled_from(PLUGINS), max_size=2)
_UNGATED, _GATED = PodSpec(), PodSpec(scheduling_gates=("g",))


def own(pod: PendingPod, object_event: ObjectEvent) -> bool:
    """Queue on the pod's own change."""
    return getattr(object_event.new, "uid", "") == pod.uid


def twin_hint(plugin: str, pod: QueuedPod, new: object) -> bool:
    """Return, for the twin, the result that the hint `own` has in the queue."""
    return plugin != "Own" or getattr(new, "uid", "") == pod.uid


REGISTRATIONS = (
    Registration(plugin="Later", event=event_of("CSINodeAdd")),
    *(
        Registration(plugin=plugin, event=event_of(label), hint=own if plugin == "Own" else None)
        for label, plugins in INTEREST.items()
        for plugin in sorted(plugins)
        if not event_of(label).is_wildcard
    ),
)


class TwinMachine(RuleBasedStateMachine):
    """Do the same to a queue and to its twin."""

    hints: ClassVar[bool] = True
    pops_backoff: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.config = QueueConfig(
            version="v1.34",
            queueing_hints=self.hints,
            pop_from_backoff_q=self.pops_backoff,
            registrations=REGISTRATIONS,
        )
        self.queue = SchedulingQueue(self.config)
        self.twin = Twin(
            hints=self.hints,
            pops_backoff=self.pops_backoff,
            interest=lambda event: INTEREST.get(event, set()),
            hint=twin_hint,
        )
        self.pods: dict[str, QueuedPod] = {}
        self.in_flight: dict[PopId, Stay] = {}
        self.owner: dict[PopId, str] = {}

    @initialize(count=st.integers(min_value=0, max_value=4))
    def start(self, count: int) -> None:
        """Begin with some pods."""
        for name in "abcd"[:count]:
            self.add(name, 0, False)

    @rule(name=names, priority=st.integers(0, 2), gated=st.booleans())
    def add(self, name: str, priority: int, gated: bool) -> None:
        """Create a pod."""
        pod = self.version(name, priority, 0, gated=gated)
        self.queue.add(pod, now_ns=self.twin.now_ns)
        self.twin.add(pod)

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), priority=st.integers(0, 2), label=st.integers(0, 1), gated=st.booleans())
    def update(self, data: st.DataObject, priority: int, label: int, gated: bool) -> None:
        """Change a pod."""
        name = data.draw(st.sampled_from(sorted(self.pods)))
        old = self.pods[name]
        new = self.version(name, priority, label, gated=gated)
        changes = []
        if old.labels != new.labels:
            changes.append("UnschedulablePodUpdatePodLabel")
        if old.gates and not new.gates:
            changes.append("UnschedulablePodUpdatePodSchedulingGatesEliminated")
        self.queue.update(old, new, now_ns=self.twin.now_ns)
        self.twin.update(old, new, changes or ["UnschedulablePodUpdate"])

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """Delete a pod."""
        name = data.draw(st.sampled_from(sorted(self.pods)))
        self.queue.delete(self.pods.pop(name).ref, now_ns=self.twin.now_ns)
        self.twin.delete(name)

    @rule(commit=st.booleans(), owner=owners)
    def pop(self, commit: bool, owner: str) -> None:
        """Begin a cycle, by Pop or by a commit of the head."""
        heads = self.queue.heads(1)
        stay = self.twin.pop()
        outcome: object
        if commit and heads:
            outcome = self.queue.commit_pop(heads[0].id, now_ns=self.twin.now_ns, owner=owner)
        else:
            outcome = self.queue.pop(now_ns=self.twin.now_ns, owner=owner)
        if stay is None:
            assert outcome == WouldBlock()
            assert not heads
            return
        assert isinstance(outcome, InFlightPod)
        assert heads == [outcome._replace(owner="")]
        seen = (outcome.pod, outcome.cycle, outcome.attempts, outcome.initial_attempt_ns)
        assert seen == (stay.pod, self.twin.cycle, stay.attempts, stay.first_ns)
        self.in_flight[outcome.id] = stay
        self.owner[outcome.id] = owner

    @rule(owner=owners)
    def vanish(self, owner: str) -> None:
        """Let a scheduler go: its pops are back, in the order of their cycles."""
        theirs = sorted(
            (pop_id for pop_id in self.in_flight if self.owner[pop_id] == owner),
            key=lambda pop_id: pop_id.cycle,
        )
        self.queue.release_owner(owner, now_ns=self.twin.now_ns)
        for pop_id in theirs:
            self.twin.undo(self.in_flight.pop(pop_id))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), plugins=refusers, pending=refusers)
    def fail(self, data: st.DataObject, plugins: set[str], pending: set[str]) -> None:
        """End a cycle with a failure, an error where no plugin refused the pod."""
        self.give_back(data.draw(st.sampled_from(sorted(self.in_flight))), plugins, pending)

    @rule(plugins=refusers, pending=refusers, event=st.sampled_from((None, *EVENTS)))
    def refuse(self, plugins: set[str], pending: set[str], event: str | None) -> None:
        """Fail a whole cycle: most transitions need refused pods."""
        before = set(self.in_flight)
        self.pop(False, "one")
        if event is not None:
            self.move(event)
        for pop_id in sorted(set(self.in_flight) - before):
            self.give_back(pop_id, plugins, pending)

    @rule(plugins=refusers, pending=refusers, count=st.integers(1, 4), stray=st.booleans())
    def refuse_the_next(
        self, plugins: set[str], pending: set[str], count: int, stray: bool
    ) -> None:
        """Pop pods and give each back at once; the queue does it all in one operation."""
        heads, now_ns = self.queue.heads(count), self.twin.now_ns
        failure = Failure(
            plugins=tuple(sorted(plugins)),
            pending_plugins=tuple(sorted(pending)),
            error=not (plugins or pending),
        )
        failed = [FailedPod(head.pod.uid, failure) for head in heads]
        if stray:
            failed.append(FailedPod("uid-nobody", failure))
        cycle = self.twin.cycle + 1
        apart = SchedulingQueue.restore(self.config, self.queue.snapshot())
        committed = self.queue.commit_unschedulable(failed, first_cycle=cycle, now_ns=now_ns)
        done = commit_one_by_one(apart, heads, failure, now_ns)
        assert self.queue.snapshot() == apart.snapshot()
        assert isinstance(committed, NotNext) is (done < len(failed))
        assert not isinstance(committed, NotNext) or committed.committed == done
        for head in heads[:done]:
            stay = self.twin.pop()
            assert stay is not None
            assert stay.pod.uid == head.pod.uid
            self.twin.give_back(stay, self.twin.cycle, plugins, pending)

    def give_back(self, pop_id: PopId, plugins: set[str], pending: set[str]) -> None:
        """End a pop with a failure."""
        stay = self.in_flight.pop(pop_id)
        failure = Failure(
            plugins=tuple(sorted(plugins)),
            pending_plugins=tuple(sorted(pending)),
            error=not (plugins or pending),
        )
        outcome = self.queue.add_unschedulable(pop_id, now_ns=self.twin.now_ns, failure=failure)
        fits = self.twin.give_back(stay, pop_id.cycle, plugins, pending)
        assert fits is not isinstance(outcome, AlreadyPresent)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        """End a cycle well."""
        pop_id = data.draw(st.sampled_from(sorted(self.in_flight)))
        self.queue.done(pop_id)
        self.twin.done(self.in_flight.pop(pop_id).pod.uid)

    @rule(event=st.sampled_from(EVENTS))
    def move(self, event: str) -> None:
        """Send a cluster event."""
        self.queue.move_all(ObjectEvent.of(event), now_ns=self.twin.now_ns)
        self.twin.move(event)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def activate(self, data: st.DataObject) -> None:
        """Ask for a pod at once."""
        pod = self.pods[data.draw(st.sampled_from(sorted(self.pods)))]
        self.queue.activate([pod.ref], now_ns=self.twin.now_ns)
        self.twin.activate(pod)

    @rule(ms=st.sampled_from([1, 400, 1000, 3000, 9000, 301_000]))
    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.twin.now_ns += ms * 1_000_000

    @rule()
    def flush_backoff(self) -> None:
        """Tick the second."""
        self.queue.flush_backoff(now_ns=self.twin.now_ns)
        self.twin.flush_backoff()

    @rule()
    def flush_leftover(self) -> None:
        """Tick the half minute."""
        self.queue.flush_leftover(now_ns=self.twin.now_ns)
        self.twin.flush_leftover()

    @rule()
    def crash(self) -> None:
        """Lose the queue and go on from its checkpoint."""
        self.queue = SchedulingQueue.restore(self.config, self.queue.snapshot())

    @invariant()
    def the_twin_has_the_same_stays_in_the_same_order(self) -> None:
        """Compare every sub-queue, and the events recorded for pods in flight."""
        state, twin = self.queue.snapshot(), self.twin
        assert [seen(pod_info) for pod_info in state.active] == twin_rows(twin, twin.active)
        backing_off = [(pod.expiry_ns, seen(pod.pod_info)) for pod in state.backoff]
        assert [row for _, row in backing_off] == twin_rows(twin, twin.backoff)
        assert [ns for ns, _ in backing_off] == [
            twin.expiry_ns(stay) for stay in twin.in_order(twin.backoff)
        ]
        errors = [seen(pod.pod_info) for pod in state.error_backoff]
        assert errors == twin_rows(twin, twin.error_backoff)
        waiting = sorted(seen(pod_info) for pod_info in state.unschedulable)
        assert waiting == sorted(twin_rows(twin, twin.unschedulable))
        assert (state.scheduling_cycle, state.move_request_cycle) == (twin.cycle, twin.move_cycle)
        flight = [entry for entry in twin.flight if isinstance(entry, str)]
        assert [uid for uid, _ in state.hint_state.pods] == flight
        assert len(state.hint_state.events) == len(twin.flight) - len(flight)

    @invariant()
    def an_entry_stands_in_one_sub_queue(self) -> None:
        """Or in two where upstream leaves it: judged twice in one update, without pops."""
        state = self.queue.snapshot()
        waiting = [pod.pod_info for pod in (*state.backoff, *state.error_backoff)]
        pod_infos = [*state.active, *waiting, *state.unschedulable]
        places = Counter(pod_info.sequence for pod_info in pod_infos)
        assert sorted(places.elements()) == sorted(self.twin.sequences())
        if self.pops_backoff or not self.hints:
            assert all(count == 1 for count in places.values())

    @invariant()
    def no_pop_has_two_holders(self) -> None:
        """Each pop in flight is there once."""
        ids = [popped.id for popped in self.queue.snapshot().in_flight]
        assert sorted(ids) == sorted(self.in_flight)

    @invariant()
    def the_heads_are_what_pops_return(self) -> None:
        """On a restored copy, for every count up to all of them."""
        copy = SchedulingQueue.restore(self.config, self.queue.snapshot())
        heads = self.queue.heads(20)
        assert [copy.pop(now_ns=self.twin.now_ns) for _ in heads] == heads
        assert copy.pop(now_ns=self.twin.now_ns) == WouldBlock()
        for count in range(len(heads)):
            assert self.queue.heads(count) == heads[:count]

    @invariant()
    def nothing_moves_before_the_wake_up(self) -> None:
        """Try the flushes on restored copies, a tick before and at the tick."""
        now_ns = self.twin.now_ns
        wakeup_ns = self.queue.next_wakeup_ns(now_ns)
        if wakeup_ns is None:
            assert not self.flushed_at(now_ns + 1000 * SECOND_NS)
            return
        if wakeup_ns - SECOND_NS >= now_ns:
            assert not self.flushed_at(wakeup_ns - SECOND_NS)

    def flushed_at(self, tick_ns: int) -> int:
        """Return how many pods a copy's flushes would move at this tick."""
        copy = SchedulingQueue.restore(self.config, self.queue.snapshot())
        moved = copy.flush_backoff(now_ns=tick_ns)
        return moved + (0 if tick_ns % (30 * SECOND_NS) else copy.flush_leftover(now_ns=tick_ns))

    def version(self, name: str, priority: int, label: int, *, gated: bool) -> QueuedPod:
        """Build a pod and keep it as the name's last version."""
        pod = QueuedPod(
            uid=f"uid-{name}",
            namespace="ns",
            name=name,
            priority=priority,
            gates=("Gate",) if gated else (),
            digest=f"{priority} {label} {gated}".encode(),
            labels={"l": str(label)},
            spec=_GATED if gated else _UNGATED,
        )
        self.pods[name] = pod
        return pod


def commit_one_by_one(
    queue: SchedulingQueue, heads: Sequence[InFlightPod], failure: Failure, now_ns: int
) -> int:
    """Pop and requeue pods by two operations each, until another pod is next; return how many."""
    for count, head in enumerate(heads):
        if isinstance(queue.commit_pop(head.id, now_ns=now_ns), NotNext):
            return count
        queue.add_unschedulable(head.id, now_ns=now_ns, failure=failure)
    return len(heads)


Row = tuple[str, int, int, int, int, int, str, tuple[str, ...]]


def seen(pod_info: QueuedPodInfo) -> Row:
    """Return those fields of a real entry that the twin has, too."""
    failure = pod_info.failure or Failure()
    refused = tuple(sorted({*failure.plugins, *failure.pending_plugins}))
    return (
        pod_info.pod.name,
        pod_info.pod.priority,
        pod_info.timestamp_ns,
        pod_info.attempts,
        pod_info.unschedulable_count,
        pod_info.consecutive_errors,
        pod_info.gating_plugin,
        refused,
    )


def twin_rows(twin: Twin, queue: dict[str, Stay]) -> list[Row]:
    """Return a twin's sub-queue as rows, in its order."""
    return [
        (
            stay.pod.name,
            stay.pod.priority,
            stay.since_ns,
            stay.attempts,
            stay.refusals,
            stay.errors,
            stay.gate,
            tuple(sorted(stay.refused_by)),
        )
        for stay in twin.in_order(queue)
    ]


class TwinWithoutPops(TwinMachine):
    """backoffQ is not popped from."""

    pops_backoff = False


class TwinWithoutHints(TwinMachine):
    """Moves are counted."""

    hints = False


class TwinOfBefore(TwinMachine):
    """Neither: as before v1.32."""

    hints = False
    pops_backoff = False


@pytest.mark.parametrize("machine", [TwinMachine, TwinWithoutPops, TwinWithoutHints, TwinOfBefore])
def test_v1_34_agrees_with_its_twin(machine: type[TwinMachine]) -> None:
    """Some thousands of steps in all, under every setting of the feature gates."""
    run(machine, examples=80)
