"""The composed queue: cycles, moves, updates and results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.framework.cluster_event import ObjectEvent
from services.queue.core.queued_pod import Failure, PopId
from services.queue.core.results import (
    AlreadyPresent,
    NotInFlight,
    NotNext,
    QueueClosed,
    Requeued,
    SubQueue,
    WouldBlock,
)
from services.queue.core.rules.versions import V1_16, V1_20, V1_34, QueueConfig, QueueVersion
from services.queue.core.scheduling_queue import SchedulingQueue
from tests.unit.queue.builders import fail_next, make_queue, make_queued_pod, names, pop, seconds


def test_an_empty_queue_would_block_and_a_closed_one_says_so_once_drained() -> None:
    """Close does not take pods away."""
    queue = make_queue()
    assert queue.pop(now_ns=0) == WouldBlock()
    queue.add(make_queued_pod("a"), now_ns=0)
    queue.close()
    assert pop(queue).pod.name == "a"
    assert queue.pop(now_ns=0) == QueueClosed(text="scheduling queue is closed")


def test_heads_are_the_results_of_the_next_pops_and_are_not_in_flight() -> None:
    """Cycles count up from the next one."""
    queue = make_queue(make_queued_pod("low"), make_queued_pod("high", priority=5))
    heads = queue.heads(10)
    assert [(head.pod.name, head.cycle, head.attempts) for head in heads] == [
        ("high", 1, 1),
        ("low", 2, 1),
    ]
    queue.add(make_queued_pod("higher", priority=9), now_ns=0)
    assert pop(queue).pod.name == "higher"


def test_a_pop_is_committed_only_if_it_is_the_next() -> None:
    """Another pod, another cycle and an empty queue are refused, and nothing changes."""
    queue = make_queue(make_queued_pod("a"), make_queued_pod("b", priority=1))
    before = queue.snapshot()
    head = queue.heads(1)[0]
    for stale in (PopId("uid-a", 1), PopId("uid-b", 2)):
        assert queue.commit_pop(stale, now_ns=0) == NotNext(next=head)
    assert queue.snapshot() == before
    assert queue.commit_pop(head.id, now_ns=0) == head
    assert queue.snapshot().in_flight == (head,)
    pop(queue)
    assert queue.commit_pop(PopId("uid-a", 3), now_ns=0) == NotNext(next=WouldBlock())


def test_a_failed_pod_backs_off_only_if_a_move_came_during_its_cycle() -> None:
    """A move counts from the pop's cycle on, even if it moved nothing."""
    queue = make_queue(make_queued_pod("a", priority=1), make_queued_pod("b"))
    first = pop(queue)
    assert queue.move_all(ObjectEvent.of("NodeAdd"), now_ns=0) == 0
    second = pop(queue)
    assert queue.add_unschedulable(first.id, now_ns=1) == Requeued(queue=SubQueue.BACKOFF)
    assert queue.add_unschedulable(second.id, now_ns=1) == Requeued(queue=SubQueue.UNSCHEDULABLE)


def test_a_leftover_flush_notes_a_move_only_if_it_moves() -> None:
    """Neither does it move a pod that has waited for exactly a minute."""
    queue = make_queue(make_queued_pod("a"))
    fail_next(queue)
    assert queue.flush_leftover(now_ns=seconds(60)) == 0
    assert queue.snapshot().move_request_cycle == -1
    assert queue.flush_leftover(now_ns=seconds(60) + 1) == 1
    assert queue.snapshot().move_request_cycle == 1


def test_a_failure_refreshes_the_timestamp_and_keeps_the_first_one() -> None:
    """The failure's plugins are kept with the pod."""
    queue = make_queue(make_queued_pod("a"))
    failure = Failure(plugins=("NodeResourcesFit",))
    queue.add_unschedulable(pop(queue).id, now_ns=7, failure=failure)
    pod_info = queue.snapshot().unschedulable[0]
    assert (pod_info.timestamp_ns, pod_info.initial_attempt_ns, pod_info.attempts) == (7, 0, 1)
    assert pod_info.failure == failure


def test_any_update_makes_a_backing_off_pod_active() -> None:
    """Even one of the status alone."""
    queue = make_queue(make_queued_pod("a"))
    popped = pop(queue)
    queue.move_all(ObjectEvent.of("NodeAdd"), now_ns=0)
    queue.add_unschedulable(popped.id, now_ns=0)
    pod = make_queued_pod("a")
    assert queue.update(pod, pod, now_ns=1) is SubQueue.ACTIVE
    assert pop(queue, 1).attempts == 2


def test_only_a_change_outside_the_status_activates_an_unschedulable_pod() -> None:
    """By the digest."""
    queue = make_queue(make_queued_pod("a"))
    fail_next(queue)
    old, changed = make_queued_pod("a"), make_queued_pod("a", version=2)
    assert queue.update(old, old, now_ns=1) is SubQueue.UNSCHEDULABLE
    assert queue.update(old, changed, now_ns=1) is SubQueue.ACTIVE
    assert pop(queue, 1).pod == changed


def test_an_update_without_an_old_version_counts_as_changed() -> None:
    """Upstream would fail there; here the pod is tried again."""
    queue = make_queue(make_queued_pod("a"))
    fail_next(queue)
    assert queue.update(None, make_queued_pod("a", nominated="n1"), now_ns=1) is SubQueue.ACTIVE
    assert queue.nominated_for("n1") == (make_queued_pod("a").ref,)


def test_an_update_of_priority_reorders_the_active_pods() -> None:
    """The timestamp and the attempts are the same."""
    queue = make_queue(make_queued_pod("a"), make_queued_pod("b"))
    queue.update(make_queued_pod("b"), make_queued_pod("b", priority=3), now_ns=5)
    assert [(head.pod.name, head.timestamp_ns) for head in queue.heads(2)] == [("b", 0), ("a", 0)]


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        (V1_20, "pod: ns/a is already present in the active queue"),
        (V1_16, "pod is already present in the activeQ"),
    ],
    ids=["v1.20", "v1.16"],
)
def test_an_update_in_flight_queues_a_second_copy_and_the_first_is_refused(
    mode: QueueVersion, text: str
) -> None:
    """The refused copy is dropped, and its pop has ended."""
    queue = make_queue(make_queued_pod("a"), mode=mode)
    first = pop(queue)
    queue.update(make_queued_pod("a"), make_queued_pod("a", version=2), now_ns=1)
    second_head = queue.heads(1)[0]
    assert (second_head.attempts, second_head.initial_attempt_ns) == (1, 1)
    outcome = queue.add_unschedulable(first.id, now_ns=2)
    assert outcome == AlreadyPresent(queue=SubQueue.ACTIVE, text=text)
    assert queue.add_unschedulable(first.id, now_ns=2) == NotInFlight()
    assert queue.snapshot().in_flight == ()


def test_two_pops_of_one_pod_count_attempts_separately() -> None:
    """Each outcome names its pop."""
    queue = make_queue(make_queued_pod("a"))
    fail_next(queue)
    queue.move_all(ObjectEvent.of("NodeAdd"), now_ns=seconds(9))
    first = pop(queue, seconds(9))
    queue.update(make_queued_pod("a"), make_queued_pod("a"), now_ns=seconds(9))
    second = pop(queue, seconds(9))
    assert (first.attempts, second.attempts) == (2, 1)
    assert queue.done(first.id) is None
    assert queue.done(first.id) == NotInFlight()
    assert queue.done(PopId("uid-b", second.cycle)) == NotInFlight()
    queue.add_unschedulable(second.id, now_ns=seconds(9))
    assert queue.snapshot().unschedulable[0].attempts == 1


def test_a_failed_pod_may_be_requeued_in_a_newer_version() -> None:
    """The nomination is then the status'; one in memory is lost."""
    queue = make_queue(make_queued_pod("a"), make_queued_pod("b"))
    first, second = pop(queue), pop(queue)
    queue.nominate(second.pod.ref, "n1")
    queue.add_unschedulable(
        first.id, now_ns=1, pod=make_queued_pod("a", version=2, nominated="n2"), cycle=2
    )
    queue.add_unschedulable(second.id, now_ns=1)
    assert queue.nominated_for("n1") == ()
    assert queue.nominated_for("n2") == (first.pod.ref,)


@pytest.mark.parametrize("mode", [V1_16, V1_20, V1_34])
def test_a_nomination_without_a_node_takes_the_one_of_the_pods_status(mode: QueueVersion) -> None:
    """Wherever the pod is; one without a node there, or an unknown one, leaves its node.

    v1.34 keeps it under the node "", as ModeOverride does; the older versions return before that.
    """
    named, bare = make_queued_pod("a", nominated="n1"), make_queued_pod("b")
    queue = make_queue(named, bare, make_queued_pod("c", nominated="n1"), mode=mode)
    for where in range(2):
        for pod in (named, bare):
            queue.nominate(pod.ref, "n2")
            queue.nominate(pod.ref, "")
        assert [ref.name for ref in queue.nominated_for("n1")] == ["c", "a"]
        assert queue.nominated_for("n2") == ()
        assert queue.nominated_for("") == ((bare.ref,) if mode is V1_34 else ())
        if not where:
            assert {pop(queue).pod.name for _ in range(3)} == {"a", "b", "c"}
    stranger = replace(named.ref, uid="another")
    queue.nominate(stranger, "n2")
    queue.nominate(stranger, "")
    assert queue.nominated_for("n2") == ()
    assert queue.nominated_for("") == ((bare.ref, stranger) if mode is V1_34 else ())


def test_a_nomination_to_no_node_stays_until_a_status_or_a_removal_ends_it() -> None:
    """Upstream has it in nominatedPods[""], and a pop with it names no node."""
    pod, named = make_queued_pod("a"), make_queued_pod("a", nominated="n1")
    queue = make_queue(pod, mode=V1_34)
    queue.nominate(pod.ref, "")
    queue.update(pod, pod, now_ns=0)
    queue = SchedulingQueue.restore(QueueConfig(version="v1.34"), queue.snapshot())
    assert queue.nominated_for("") == (pod.ref,)
    assert pop(queue).nominated_node_name == ""
    assert queue.nominated_for("") == (pod.ref,)
    queue.update(pod, named, now_ns=0)
    queue.nominate(pod.ref, "")
    assert (queue.nominated_for("n1"), queue.nominated_for("")) == ((pod.ref,), ())
    other = make_queued_pod("b")
    queue.nominate(other.ref, "")
    queue.delete_nomination(other.uid)
    assert queue.nominated_for("") == ()


@pytest.mark.parametrize("mode", [V1_16, V1_20, V1_34])
def test_a_nomination_without_a_node_follows_the_latest_status(mode: QueueVersion) -> None:
    """Also of a pod that changed while it was in flight."""
    old, new = make_queued_pod("a", nominated="n1"), make_queued_pod("a", nominated="n2")
    queue = make_queue(old, mode=mode)
    pop(queue)
    queue.update(old, new, now_ns=1)
    queue.nominate(new.ref, "")
    assert queue.nominated_for("n2") == (new.ref,)
    assert queue.nominated_for("n1") == ()


def test_a_pop_returns_and_keeps_the_nomination() -> None:
    """It ends when the pod is deleted or it is dropped."""
    queue = make_queue(make_queued_pod("a", nominated="n1"))
    popped = pop(queue)
    assert popped.nominated_node_name == "n1"
    assert queue.nominated_for("n1") == (popped.pod.ref,)
    queue.delete(popped.pod.ref, now_ns=0)
    assert queue.nominated_for("n1") == ()
    assert queue.done(popped.id) is None


def test_adding_again_starts_over() -> None:
    """Attempts and first time are those of a new pod."""
    queue = make_queue(make_queued_pod("a"))
    fail_next(queue)
    queue.add(make_queued_pod("a"), now_ns=4)
    assert queue.sizes()[SubQueue.UNSCHEDULABLE] == 0
    head = queue.heads(1)[0]
    assert (head.attempts, head.initial_attempt_ns) == (1, 4)


def test_a_wake_up_is_the_first_tick_that_moves_something() -> None:
    """Until then a flush moves nothing, and at it one does."""
    queue = make_queue(make_queued_pod("a"))
    assert queue.next_wakeup_ns(0) is None
    popped = pop(queue, seconds(0.3))
    queue.move_all(ObjectEvent.of("NodeAdd"), now_ns=seconds(0.3))
    queue.add_unschedulable(popped.id, now_ns=seconds(0.3))
    assert queue.next_wakeup_ns(seconds(0.3)) == seconds(2)
    assert queue.flush_backoff(now_ns=seconds(1)) == 0
    assert queue.flush_backoff(now_ns=seconds(2)) == 1
    assert queue.next_wakeup_ns(seconds(2)) is None


def test_a_closed_queue_requests_no_wake_up() -> None:
    """Its timers have stopped."""
    queue = make_queue(make_queued_pod("a"))
    fail_next(queue)
    queue.close()
    assert queue.next_wakeup_ns(0) is None


def test_incoming_pods_are_counted_by_queue_and_event_until_taken() -> None:
    """The label values are upstream's."""
    queue = make_queue(make_queued_pod("a"), make_queued_pod("b"))
    fail_next(queue)
    queue.move_all(ObjectEvent.of("NodeAdd"), now_ns=1)
    queue.flush_backoff(now_ns=seconds(1))
    assert queue.take_incoming() == {
        (SubQueue.ACTIVE, "PodAdd"): 2,
        (SubQueue.UNSCHEDULABLE, "ScheduleAttemptFailure"): 1,
        (SubQueue.BACKOFF, "NodeAdd"): 1,
        (SubQueue.ACTIVE, "BackoffComplete"): 1,
    }
    assert queue.take_incoming() == {}


def test_a_restored_queue_holds_everything() -> None:
    """Pops in flight, nominations and counters are part of the state."""
    queue = make_queue(*(make_queued_pod(name) for name in "abcd"), mode=V1_16)
    fail_next(queue)
    in_flight = pop(queue)
    queue.nominate(in_flight.pod.ref, "n1")
    queue.move_all(ObjectEvent.of("NodeAdd"), now_ns=5)
    fail_next(queue, 5)
    state = queue.snapshot()
    restored = SchedulingQueue.restore(QueueConfig(version="v1.16"), state)
    assert restored.snapshot() == state
    assert [pod.name for pod in restored.pending()] == ["d", "a", "c"]
    assert restored.done(in_flight.id) is None
    assert names(restored.heads(1)) == ["d"]
