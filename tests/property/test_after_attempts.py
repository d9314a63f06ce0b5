"""What the queue says of the time after its heads have been tried is what then comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.framework.cluster_event import ObjectEvent
from services.framework.plugins.events import IN_TREE
from services.kube.time import SECOND_NS
from services.queue.core.queued_pod import FailedPod, Failure, InFlightPod
from services.queue.core.results import AfterAttempts
from services.queue.core.rules.versions import QueueConfig
from services.queue.core.scheduling_queue import SchedulingQueue
from tests.unit.queue.builders import make_queued_pod, names

FIT, TAINTS = Failure(plugins=("NodeResourcesFit",)), Failure(plugins=("TaintToleration",))
_FAILURES = st.sampled_from([FIT, TAINTS, Failure(error=True)])
_EVENTS = st.sampled_from(["NodeAdd", "AssignedPodDelete", "NodeTaintChange"])
_DELAYS = st.integers(0, 3).map(lambda quarters: quarters * SECOND_NS // 4) | st.just(
    40 * SECOND_NS
)
_STEPS = st.lists(
    st.tuples(
        _DELAYS,
        st.one_of(
            st.tuples(st.just("add"), st.sampled_from("abcdef")),
            st.tuples(st.just("try"), st.none() | _FAILURES),
            st.tuples(st.just("move"), _EVENTS),
            st.tuples(st.just("flush"), st.sampled_from(["backoff", "leftover"])),
            st.tuples(st.just("gate"), st.sampled_from("abcdef")),
        ),
    ),
    max_size=25,
)


def after(queue: SchedulingQueue, step: tuple[str, object], now_ns: int) -> None:
    """Carry out a step."""
    match step:
        case "add" | "gate" as kind, str(name):
            pod = make_queued_pod(name)
            if all(waiting.key != pod.key for waiting in queue.pending()):
                gates = ("Held",) if kind == "gate" else ()
                queue.add(pod._replace(gates=gates), now_ns=now_ns)
        case "try", failure:
            popped = queue.pop(now_ns=now_ns)
            if isinstance(popped, InFlightPod) and isinstance(failure, Failure):
                queue.add_unschedulable(popped.id, now_ns=now_ns, failure=failure)
            elif isinstance(popped, InFlightPod):
                queue.done(popped.id)
        case "move", str(label):
            queue.move_all(ObjectEvent.of(label), now_ns=now_ns)
        case "flush", "backoff":
            queue.flush_backoff(now_ns=now_ns)
        case "flush", _:
            queue.flush_leftover(now_ns=now_ns)


@given(
    steps=_STEPS,
    hints=st.booleans(),
    pops_early=st.booleans(),
    wait_ns=_DELAYS,
    refused=st.lists(st.booleans(), min_size=6, max_size=6),
    later_ns=_DELAYS,
)
def test_the_wakeup_after_attempts_is_the_queues(
    steps: list[tuple[int, tuple[str, object]]],
    *,
    hints: bool,
    pops_early: bool,
    wait_ns: int,
    refused: list[bool],
    later_ns: int,
) -> None:
    """With refusals or without; and pods that are added then are next, and change no wakeup."""
    config = QueueConfig(
        version="v1.34", queueing_hints=hints, pop_from_backoff_q=pops_early, registrations=IN_TREE
    )
    queue, now_ns = SchedulingQueue(config), 0
    for delay_ns, step in steps:
        now_ns += delay_ns
        after(queue, step, now_ns)
    heads = queue.heads(100)
    assert queue.after_attempts(len(heads) + 1, now_ns) is None
    tried_ns = now_ns + wait_ns
    foreseen = queue.after_attempts(len(heads), tried_ns)
    assert isinstance(foreseen, AfterAttempts)
    for head, is_refused in zip(heads, refused, strict=False):
        if is_refused:
            failed = [FailedPod(head.pod.uid, FIT)]
            queue.commit_unschedulable(failed, first_cycle=head.cycle, now_ns=tried_ns)
        else:
            queue.commit_pop(head.id, now_ns=tried_ns)
    any_refused = any(refused[: len(heads)])
    wakeup_ns = foreseen.refused_wakeup_ns if any_refused else foreseen.wakeup_ns
    assert queue.heads(100) == []
    assert queue.next_wakeup_ns(tried_ns) == wakeup_ns
    added_ns = tried_ns + later_ns
    if wakeup_ns is not None and wakeup_ns < added_ns:
        return
    queue.add(make_queued_pod("new"), now_ns=added_ns)
    assert names(queue.heads(100)) == ["new"]
    assert queue.next_wakeup_ns(added_ns) == wakeup_ns
