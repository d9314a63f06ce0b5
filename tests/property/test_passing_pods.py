"""Pods that are added, popped and deleted while no pod waits: the queue needs only their count."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from reprieve.kube.v1beta1 import meta_pb2, pod_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.session.v1beta1 import session_pb2
from services.kube.time import SECOND_NS
from services.scheduler.ahead.held import without_passing
from tests.scrapes import samples
from tests.unit.queue.test_servicer import FIT, Harness

_TIMED = "duration_seconds"
LIVES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["come", "some"]), st.integers(1, 4)),
        st.tuples(st.sampled_from(["end", "again", "fail", "move", "assigned"]), st.just(1)),
    ),
    max_size=30,
)


def ref(number: int) -> meta_pb2.ObjectReference:
    """Return a pod's name."""
    return meta_pb2.ObjectReference(uid=f"uid-{number}", namespace="ns", name=f"p-{number}")


def lived(lives: list[tuple[str, int]]) -> list[queue_pb2.Operation]:
    """Return the operations of a scheduler that tries each pod at once; some bindings fail later.

    Of those that come as "some" every second one is refused. A pod that fails waits from then on,
    and nobody comes after it, nor after an event that may move refused ones. A pod that has ended
    may come again under its uid, and pods that come together are added before the first is popped.
    """
    operations: list[queue_pb2.Operation] = []
    in_flight: list[session_pb2.PopId] = []
    gone: list[int] = []
    cycle, any_refused = 0, False
    for at_s, (what, count) in enumerate(lives, 1):
        if what in {"come", "some", "again"}:
            new = range(cycle + 1000, cycle + 1000 + count)
            numbers = [gone.pop(0)] if what == "again" and gone else list(new)
            for number in numbers:
                meta = meta_pb2.ObjectMeta(uid=f"uid-{number}", namespace="ns", name=f"p-{number}")
                operation = queue_pb2.Operation(time_ns=at_s * SECOND_NS)
                operation.add.pod.CopyFrom(pod_pb2.Pod(metadata=meta))
                operations.append(operation)
            for place, number in enumerate(numbers):
                cycle += 1
                if what == "some" and place % 2:
                    operation = queue_pb2.Operation(time_ns=at_s * SECOND_NS)
                    refused = operation.commit_unschedulable
                    refused.first_cycle = cycle
                    refused.uids.append(f"uid-{number}")
                    refused.failures.append(FIT)
                    refused.failure_indexes.append(0)
                    operations.append(operation)
                    any_refused = True
                    continue
                pop = session_pb2.PopId(uid=f"uid-{number}", cycle=cycle)
                operation = queue_pb2.Operation(time_ns=at_s * SECOND_NS)
                operation.commit_pop.pop.CopyFrom(pop)
                operations.append(operation)
                in_flight.append(pop)
            continue
        if any_refused and what in {"move", "assigned"}:
            return operations
        for _ in range(count):
            operation = queue_pb2.Operation(time_ns=at_s * SECOND_NS)
            if what == "move":
                operation.move.event.label = "NodeAdd"
            elif what == "assigned":
                meta = meta_pb2.ObjectMeta(uid="uid-0", namespace="ns", name="other")
                operation.assigned_pod_add.pod.metadata.CopyFrom(meta)
            elif not in_flight:
                continue
            elif what == "end":
                pop = in_flight.pop(0)
                operation.done.CopyFrom(pop)
                operations.append(operation)
                operation = queue_pb2.Operation(time_ns=at_s * SECOND_NS)
                gone.append(int(pop.uid.removeprefix("uid-")))
                operation.delete_pod.CopyFrom(ref(gone[-1]))
            else:
                operation.add_unschedulable.pop.CopyFrom(in_flight.pop(0))
                operation.add_unschedulable.failure.CopyFrom(FIT)
                return [*operations, operation]
            operations.append(operation)
    return operations


def after(rules: str, operations: Sequence[queue_pb2.Operation]) -> tuple[object, ...]:
    """Return a queue's whole visible state after the operations, and its next heads."""
    harness = Harness(rules=rules)
    move = queue_pb2.Operation(time_ns=100 * SECOND_NS)
    move.move.event.label = "NodeAdd"
    answer = harness.send(*operations, move)
    assert answer.applied == len(operations) + 1
    state = harness.state()
    flush = queue_pb2.Operation(time_ns=160 * SECOND_NS)
    flush.flush_backoff.SetInParent()
    heads = harness.send(flush, heads=10).heads
    found = samples(harness.servicer.collect)
    counts = {series: value for series, value in found.items() if _TIMED not in series}
    return state, list(heads), counts


@given(LIVES, st.sampled_from(["v1.34", "v1.20"]))
def test_a_queue_that_gets_the_count_of_passing_pods_is_as_one_that_gets_each(
    lives: list[tuple[str, int]], rules: str
) -> None:
    """State, metrics, and what is popped next."""
    operations = lived(lives)
    fewer = without_passing(operations)
    half = len(operations) // 2
    in_parts = without_passing([*without_passing(operations[:half]), *operations[half:]])
    assert after(rules, fewer) == after(rules, in_parts) == after(rules, operations)
    ended = sum(operation.WhichOneof("operation") == "done" for operation in operations)
    passed = sum(operation.pass_through.pods for operation in fewer)
    assert passed <= ended


def test_pods_that_come_together_pass_together_or_not_at_all() -> None:
    """One that has not ended is active while the first of them is popped."""
    operations = lived([("come", 2), ("end", 1)])
    assert without_passing(operations) == operations
    assert after("v1.34", without_passing(operations)) == after("v1.34", operations)
    [passing] = without_passing(lived([("come", 2), ("end", 2)]))
    assert passing.pass_through.pods == 2


def test_pods_pass_beside_one_that_is_refused_and_is_added_when_it_is_tried() -> None:
    """As it would have been refused in its turn."""
    fewer = without_passing(lived([("some", 3), ("end", 1), ("end", 1)]))
    kinds = [operation.WhichOneof("operation") for operation in fewer]
    assert kinds == ["pass_through", "add", "commit_unschedulable", "pass_through"]
    cycles = [
        operation.pass_through.first_cycle or operation.commit_unschedulable.first_cycle
        for operation in fewer
    ]
    assert cycles == [1, 0, 2, 3]
    unended = lived([("some", 3), ("end", 1)])
    assert without_passing(unended) == unended


def test_a_pod_that_is_added_again_passes_with_its_own_life_only() -> None:
    """Its first one began before these operations."""
    operations = lived([("come", 1), ("end", 1), ("again", 1), ("end", 1)])
    fewer = without_passing(operations[1:])
    kinds = [operation.WhichOneof("operation") for operation in fewer]
    assert kinds == ["commit_pop", "done", "delete_pod", "pass_through"]
    assert after("v1.34", [operations[0], *fewer]) == after("v1.34", operations)


def test_pods_that_pass_one_after_the_other_are_one_operation() -> None:
    """Of the last of them it has the time."""
    fewer = without_passing(lived([("come", 2), ("end", 1), ("end", 1), ("come", 1), ("end", 1)]))
    assert [operation.WhichOneof("operation") for operation in fewer] == ["pass_through"]
    assert (fewer[0].time_ns, fewer[0].pass_through.first_cycle) == (4 * SECOND_NS, 1)
    assert fewer[0].pass_through.pods == 3


def test_a_queue_in_which_a_pod_is_active_refuses_to_let_others_pass() -> None:
    """The caller's assumption that no other pod is active does not hold."""
    harness = Harness(rules="v1.34")
    waiting = lived([("come", 1)])[0]
    passing = queue_pb2.Operation(time_ns=2 * SECOND_NS)
    passing.pass_through.first_cycle, passing.pass_through.pods = 1, 1
    answer = harness.send(waiting, passing)
    assert answer.applied == 1
    assert answer.results[-1].code == queue_pb2.OUTCOME_CODE_NOT_NEXT


def test_a_queue_that_backs_off_by_name_lets_no_pod_pass() -> None:
    """In v1.16 the deletion of a pod ends the backoff of the next one of its name."""
    for rules, passes in (("v1.16", False), ("v1.20", True), ("v1.34", True)):
        assert Harness(rules=rules).opened.passes_through is passes
