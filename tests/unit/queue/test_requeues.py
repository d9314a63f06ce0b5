"""What moved a pod after its last attempt failed, as its head reports it."""

from __future__ import annotations

import pytest

from services.framework.cluster_event import ObjectEvent
from services.framework.plugins.events import IN_TREE
from services.queue.codec import head_message
from services.queue.core.queued_pod import Failure, Requeue
from services.queue.core.results import NotInFlight, SubQueue
from services.queue.core.rules.versions import QueueConfig
from services.queue.core.scheduling_queue import SchedulingQueue
from tests.unit.queue.builders import make_queued_pod, pop, seconds

FIT = Failure(plugins=("NodeResourcesFit",))
VICTIM_GONE = ObjectEvent.of("AssignedPodDelete")


def queue_of(version: str, *, pops_backoff: bool = False) -> SchedulingQueue:
    """Return a queue with one pod, added at 0."""
    queue = SchedulingQueue(
        QueueConfig(version=version, pop_from_backoff_q=pops_backoff, registrations=IN_TREE)
    )
    queue.add(make_queued_pod("a"), now_ns=0)
    return queue


def refuse(queue: SchedulingQueue, failure: Failure = FIT, *, now_ns: int = 0) -> None:
    """Pop the pod and give it back."""
    popped = pop(queue, now_ns)
    outcome = queue.add_unschedulable(popped.id, now_ns=now_ns, failure=failure)
    assert not isinstance(outcome, NotInFlight)


def requeue_of(queue: SchedulingQueue) -> Requeue | None:
    """Return what the head reports."""
    (head,) = queue.heads(1)
    return head.pod_info.requeue


@pytest.mark.parametrize("version", ["v1.16", "v1.20", "v1.34"])
def test_the_event_that_ends_a_wait_counts_and_not_the_end_of_the_backoff(version: str) -> None:
    """The first of two events moves the pod to backoffQ, and the flush makes it active."""
    queue = queue_of(version)
    assert requeue_of(queue) is None
    refuse(queue)
    queue.move_all(VICTIM_GONE, now_ns=seconds(0.25))
    assert queue.sizes()[SubQueue.BACKOFF] == 1
    queue.move_all(ObjectEvent.of("NodeAdd"), now_ns=seconds(0.5))
    queue.flush_backoff(now_ns=seconds(2))
    moved = Requeue("AssignedPodDelete", seconds(0.25), seconds(2))
    assert requeue_of(queue) == moved
    message = head_message(queue.heads(1)[0]).requeue
    assert (message.event, message.time_ns, message.active_time_ns) == moved


@pytest.mark.parametrize("version", ["v1.16", "v1.20", "v1.34"])
def test_a_pod_whose_backoff_is_over_becomes_active_at_once(version: str) -> None:
    """And what moved it is forgotten when it fails again."""
    queue = queue_of(version)
    refuse(queue)
    queue.move_all(VICTIM_GONE, now_ns=seconds(5))
    assert requeue_of(queue) == Requeue("AssignedPodDelete", seconds(5), seconds(5))
    refuse(queue, now_ns=seconds(6))
    (pod_info,) = queue.first(SubQueue.UNSCHEDULABLE, 1)
    assert pod_info.requeue is None
    queue.flush_leftover(now_ns=seconds(1000))
    assert requeue_of(queue) == Requeue("UnschedulableTimeout", seconds(1000), seconds(1000))


def test_a_pod_that_is_popped_from_backoff_q_was_not_active() -> None:
    """Its head has no time at which it entered activeQ."""
    queue = queue_of("v1.34", pops_backoff=True)
    refuse(queue)
    queue.move_all(VICTIM_GONE, now_ns=seconds(0.25))
    assert requeue_of(queue) == Requeue("AssignedPodDelete", seconds(0.25), None)
    assert not head_message(queue.heads(1)[0]).requeue.HasField("active_time_ns")


def test_an_error_sends_a_pod_to_backoff_by_itself() -> None:
    """Upstream counts it as ScheduleAttemptFailure."""
    queue = queue_of("v1.34")
    refuse(queue, Failure(error=True))
    queue.flush_backoff(now_ns=seconds(2))
    assert requeue_of(queue) == Requeue("ScheduleAttemptFailure", 0, seconds(2))


def test_an_undone_pop_keeps_what_moved_the_pod() -> None:
    """A pod from backoffQ becomes active then."""
    queue = queue_of("v1.34", pops_backoff=True)
    refuse(queue)
    queue.move_all(VICTIM_GONE, now_ns=seconds(0.25))
    queue.pop(now_ns=seconds(0.5), owner="gone")
    queue.release_owner("gone", now_ns=seconds(0.75))
    assert requeue_of(queue) == Requeue("AssignedPodDelete", seconds(0.25), seconds(0.75))


def test_a_pod_that_a_gate_holds_again_is_moved_anew() -> None:
    """The event before the gate does not count any more."""
    queue = queue_of("v1.34")
    refuse(queue)
    queue.move_all(VICTIM_GONE, now_ns=seconds(0.25))
    pod = queue.first(SubQueue.BACKOFF, 1)[0].pod
    queue.set_gates(pod.ref, ("Held",), now_ns=seconds(0.5))
    queue.flush_backoff(now_ns=seconds(2))
    assert queue.first(SubQueue.GATED, 1)[0].requeue is None
    queue.set_gates(pod.ref, (), now_ns=seconds(3))
    queue.activate([pod.ref], now_ns=seconds(4))
    assert requeue_of(queue) == Requeue("ForceActivate", seconds(4), seconds(4))


def test_a_restored_queue_knows_what_moved_its_pods() -> None:
    """In each sub-queue."""
    queue = queue_of("v1.34")
    refuse(queue)
    queue.move_all(VICTIM_GONE, now_ns=seconds(0.25))
    config = QueueConfig(version="v1.34", pop_from_backoff_q=False, registrations=IN_TREE)
    restored = SchedulingQueue.restore(config, queue.snapshot())
    restored.flush_backoff(now_ns=seconds(2))
    assert requeue_of(restored) == Requeue("AssignedPodDelete", seconds(0.25), seconds(2))
