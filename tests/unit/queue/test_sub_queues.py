"""The parts that the queue is composed of, each alone."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.kube.selector import LabelSelector, Operator, Requirement
from services.queue.core import sub_queues
from services.queue.core.backoff import (
    AttemptBackoff,
    BackoffLimits,
    FlushTicks,
    PodBackoffMap,
    attempt_backoff_ns,
)
from services.queue.core.nominator import Nominator
from services.queue.core.queued_pod import AffinityTerm, AssignedPod
from services.queue.core.sub_queues import (
    ActiveQueue,
    BackoffQueue,
    KeyedHeap,
    expiry_order,
    pop_order,
    ranked_expiry_order,
)
from services.queue.core.unschedulable import UnschedulablePods
from tests.unit.queue.builders import make_pod_info, make_queued_pod, names, seconds

WEB = LabelSelector(requirements=(Requirement(key="app", operator=Operator.IN, values=("web",)),))


def test_a_heap_forgets_removed_and_replaced_orders() -> None:
    """Stale orders are never returned, however many there are."""
    heap = KeyedHeap()
    for turn in range(500):
        pod_info = make_pod_info("a", at_ns=turn, sequence=turn)
        heap.put_in_order(pod_info.key, bytes([(500 - turn) // 256, (500 - turn) % 256]), pod_info)
    other = make_pod_info("b")
    heap.put_in_order(other.key, b"", other)
    heap.remove(other.key)
    assert len(heap) == 1
    assert [pod_info.timestamp_ns for pod_info in heap.pod_infos()] == [499]
    last = heap.pop()
    assert last is not None
    assert last.timestamp_ns == 499
    assert heap.pop() is None
    assert heap.peek() is None


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 8), st.integers(0, 12)),
            st.tuples(st.just("remove"), st.integers(0, 8), st.just(0)),
            st.tuples(st.sampled_from(["pop", "peek", "pod_infos"]), st.just(0), st.just(0)),
            st.tuples(st.just("first"), st.integers(0, 9), st.just(0)),
        ),
        max_size=60,
    )
)
def test_a_keyed_heap_behaves_like_a_sorted_mapping(steps: list[tuple[str, int, int]]) -> None:
    """Reading the first pods moves them within the heap, which changes no result."""
    with patch.object(sub_queues, "_STALE_MIN", 2), patch.object(sub_queues, "_FRONT_MAX", 4):
        _follow(steps)


def _follow(steps: list[tuple[str, int, int]]) -> None:
    heap, model = KeyedHeap(), dict[str, int]()
    for step, number, place in steps:
        name = f"p{number}"
        match step:
            case "put":
                taken = {order: other for other, order in model.items()}
                if taken.get(place, name) == name:
                    pod_info = make_pod_info(name, sequence=place)
                    heap.put_in_order(pod_info.key, bytes([place]), pod_info)
                    model[name] = place
            case "remove":
                found = heap.remove(("ns", name))
                assert (found is None) == (model.pop(name, None) is None)
            case "pop":
                popped = heap.pop()
                expected = min(model, key=lambda uid: model[uid], default=None)
                assert (popped.pod.name if popped else None) == expected
                model.pop(expected or "", None)
            case "peek":
                peeked = heap.peek()
                expected = min(model, key=lambda uid: model[uid], default=None)
                assert (peeked.pod.name if peeked else None) == expected
            case "pod_infos":
                assert names(heap.pod_infos()) == sorted(model, key=lambda uid: model[uid])
            case "first":
                ordered = sorted(model, key=lambda uid: model[uid])
                assert names(heap.first(number)) == ordered[:number]
        assert len(heap) == len(model)


def test_active_pods_stand_by_priority_then_timestamp_then_arrival() -> None:
    """Arrival decides between equal priorities and timestamps."""
    active = ActiveQueue()
    active.put(make_pod_info("late", at_ns=5, sequence=1))
    active.put(make_pod_info("second", sequence=3))
    active.put(make_pod_info("first", sequence=2))
    active.put(make_pod_info("high", priority=1, at_ns=9, sequence=4))
    assert names(active.pod_infos()) == ["high", "first", "second", "late"]
    assert names(active.first(2)) == ["high", "first"]


def test_a_pod_that_is_removed_and_added_again_is_queued_once() -> None:
    """Removal is lazy, so that the heap has such an order twice."""
    heap = KeyedHeap()
    pod_info, later = make_pod_info("a"), make_pod_info("b", sequence=1)
    heap.put_in_order(later.key, b"later", later)
    for _ in range(3):
        heap.put_in_order(pod_info.key, b"first", pod_info)
        assert heap.remove(pod_info.key) == pod_info
    heap.put_in_order(pod_info.key, b"first", pod_info)
    heap.put_in_order(pod_info.key, b"first", pod_info)
    assert names(heap.first(5)) == ["a", "b"]
    assert [heap.pop(), heap.pop(), heap.pop()] == [pod_info, later, None]


def test_a_sort_key_takes_the_place_of_the_priority() -> None:
    """QueueSort is data: ascending, as of priority 0, then the timestamp."""
    active = ActiveQueue()
    active.put(make_pod_info("low", priority=-1))
    active.put(make_pod_info("second", priority=9, sort_key=b"\2"))
    active.put(make_pod_info("first", priority=-9, sort_key=b"\1\1"))
    active.put(make_pod_info("plain"))
    active.put(make_pod_info("high", priority=1))
    assert names(active.pod_infos()) == ["high", "plain", "first", "second", "low"]


ranks = st.tuples(
    st.one_of(
        st.just(b""), st.binary(max_size=3), st.lists(st.sampled_from(b"\0\1\xff")).map(bytes)
    ),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 2**62),
    st.integers(0, 2**40),
)


@given(one=ranks, other=ranks, ends=st.tuples(st.integers(-1, 2**62), st.integers(-1, 2**62)))
def test_orders_as_bytes_stand_as_their_parts_do(
    one: tuple[bytes, int, int, int], other: tuple[bytes, int, int, int], ends: tuple[int, int]
) -> None:
    """Whatever the numbers and the sort keys, zero bytes and prefixes among them."""
    pod_infos, parts = [], []
    for sort_key, priority, at_ns, sequence in (one, other):
        pod_infos.append(
            make_pod_info("a", sort_key=sort_key, priority=priority, at_ns=at_ns, sequence=sequence)
        )
        parts.append((0 if sort_key else -priority, sort_key, at_ns, sequence))
    a, b = pod_infos
    assert (pop_order(a) < pop_order(b)) == (parts[0] < parts[1])
    ranked = [
        ranked_expiry_order(pod_info, end) for pod_info, end in zip(pod_infos, ends, strict=True)
    ]
    assert (ranked[0] < ranked[1]) == ((ends[0], *parts[0]) < (ends[1], *parts[1]))
    plain = [expiry_order(pod_info, end) for pod_info, end in zip(pod_infos, ends, strict=True)]
    assert (plain[0] < plain[1]) == ((ends[0], one[3]) < (ends[1], other[3]))


@pytest.mark.parametrize(
    ("attempts", "initial_s", "max_s", "expected_s"),
    [
        (1, 1, 10, 1),
        (4, 1, 10, 8),
        (5, 1, 10, 10),
        (3, 1, 4, 4),
        (1, 8, 2, 8),
        (2, 8, 2, 2),
        (0, 1, 10, 1),
        (10_000, 1, 10, 10),
        (50, 0, 10, 0),
    ],
)
def test_backoff_doubles_and_tests_the_maximum_after_doubling(
    attempts: int, initial_s: int, max_s: int, expected_s: int
) -> None:
    """An initial backoff above the maximum holds once."""
    limits = BackoffLimits(initial_ns=seconds(initial_s), max_ns=seconds(max_s))
    assert attempt_backoff_ns(attempts, limits) == seconds(expected_s)


def test_a_backoff_ends_at_its_expiry() -> None:
    """Due is expiry <= now."""
    backoff = BackoffQueue(AttemptBackoff(BackoffLimits()))
    backoff.put(make_pod_info("twice", attempts=2))
    backoff.put(make_pod_info("once", attempts=1))
    assert backoff.next_due_ns() == seconds(1)
    assert backoff.pop_due(seconds(1) - 1) is None
    due = backoff.pop_due(seconds(1))
    assert due is not None
    assert due.pod.name == "once"
    assert backoff.pop_due(seconds(1)) is None


def test_a_running_or_expiring_backoff_is_not_increased() -> None:
    """v1.16 bumps only after the expiry."""
    policy = PodBackoffMap(BackoffLimits())
    pod_info = make_pod_info("a")
    for now_s in (0, 0.5, 1):
        policy.record_failure(pod_info.key, seconds(now_s))
        assert policy.expiry_ns(pod_info) == seconds(1)
    policy.record_failure(pod_info.key, seconds(1) + 1)
    assert policy.expiry_ns(pod_info) == seconds(3) + 1


def test_the_backoff_map_forgets_a_name_once_the_maximum_has_passed() -> None:
    """Last update + maximum < now: the name starts over; at equality it does not."""
    limits = BackoffLimits()
    for late_ns, attempts in ((0, 2), (1, 1)):
        policy = PodBackoffMap(limits)
        policy.record_failure(("ns", "a"), 0)
        policy.record_failure(("ns", "a"), limits.max_ns + late_ns)
        assert [backoff.attempts for backoff in policy.state()] == [attempts]


def test_a_name_without_backoff_does_not_wait() -> None:
    """A name that the map has forgotten is due."""
    backoff = PodBackoffMap(BackoffLimits())
    assert not backoff.backs_off(make_pod_info("a", at_ns=seconds(5)), seconds(5))


def test_leftovers_are_strictly_older() -> None:
    """A pod exactly as old as the limit is not moved."""
    unschedulable = UnschedulablePods()
    for at_ns in (0, 1, 2):
        unschedulable.put(make_pod_info(f"p{at_ns}", at_ns=at_ns, sequence=at_ns))
    assert names(unschedulable.take_older(1)) == ["p0"]
    assert names(unschedulable.pod_infos()) == ["p1", "p2"]


def test_only_pods_whose_required_affinity_matches_await_an_assigned_pod() -> None:
    """Namespace and labels must both match."""
    unschedulable = UnschedulablePods()
    term = AffinityTerm(namespaces=("ns",), selector=WEB)
    unschedulable.put(make_pod_info("plain"))
    unschedulable.put(make_pod_info("awaits", affinity=(term,)))
    assert not unschedulable.take_with_term_matching(
        AssignedPod(namespace="x", labels={"app": "web"})
    )
    assert not unschedulable.take_with_term_matching(
        AssignedPod(namespace="ns", labels={"app": "db"})
    )
    taken = unschedulable.take_with_term_matching(
        AssignedPod(namespace="ns", labels={"app": "web"})
    )
    assert names(taken) == ["awaits"]
    assert names(unschedulable.pod_infos()) == ["plain"]


def test_an_update_that_drops_the_affinity_stops_awaiting() -> None:
    """The new version's terms count, not the old one's."""
    unschedulable = UnschedulablePods()
    pod_info = make_pod_info("a", affinity=(AffinityTerm(namespaces=("ns",), selector=WEB),))
    unschedulable.put(pod_info)
    unschedulable.replace(pod_info.with_pod(make_queued_pod("a")))
    assert not unschedulable.take_with_term_matching(
        AssignedPod(namespace="ns", labels={"app": "web"})
    )


def test_nominating_again_moves_a_pod_to_the_end() -> None:
    """A node's nominations are in the order in which they were made."""
    nominator = Nominator()
    a, b = make_queued_pod("a").ref, make_queued_pod("b").ref
    for ref in (a, b, a):
        nominator.nominate(ref, "n1")
    assert nominator.for_node("n1") == (b, a)
    nominator.nominate(b, "n2")
    assert nominator.for_node("n1") == (a,)
    assert nominator.node_of(b.uid) == "n2"


def test_an_update_without_names_keeps_the_nomination_in_memory() -> None:
    """A status that is cleared drops it, though."""
    nominator = Nominator()
    bare, named = make_queued_pod("a"), make_queued_pod("a", nominated="n2")
    nominator.nominate(bare.ref, "n1")
    nominator.follow_update(bare, bare)
    assert nominator.node_of(bare.uid) == "n1"
    nominator.follow_update(bare, named)
    assert nominator.node_of(bare.uid) == "n2"
    nominator.follow_update(named, bare)
    assert nominator.nominations() == ()


def test_ticks_are_whole_seconds_and_half_minutes() -> None:
    """A leftover is due strictly after a minute; the earlier tick counts."""
    ticks = FlushTicks(max_unschedulable_ns=seconds(60))
    assert ticks.next_ns(0, due_ns=None, oldest_unschedulable_ns=None) is None
    assert ticks.next_ns(0, due_ns=seconds(1.5), oldest_unschedulable_ns=None) == seconds(2)
    assert ticks.next_ns(0, due_ns=None, oldest_unschedulable_ns=0) == seconds(90)
    assert ticks.next_ns(0, due_ns=seconds(99), oldest_unschedulable_ns=0) == seconds(90)


def test_a_tick_comes_at_now_unless_its_flush_is_done() -> None:
    """What became due at a tick after its flush waits for the next."""
    due_ns = seconds(3)
    fresh = FlushTicks(max_unschedulable_ns=seconds(60))
    flushed = FlushTicks(max_unschedulable_ns=seconds(60), backoff_ns=seconds(3))
    assert fresh.next_ns(due_ns, due_ns=due_ns, oldest_unschedulable_ns=None) == due_ns
    later = flushed.next_ns(due_ns, due_ns=due_ns, oldest_unschedulable_ns=None)
    assert later == seconds(4)
