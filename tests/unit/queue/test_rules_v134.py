"""The mode v1.34: gates, hints, in-flight events, error backoff, pops from backoffQ, leases."""

from __future__ import annotations

from services.framework.cluster_event import ObjectEvent, Registration, event_of
from services.framework.plugins.events import IN_TREE
from services.kube.pod import PodSpec
from services.kube.selector import LabelSelector, Operator, Requirement
from services.queue.core.queued_pod import (
    AffinityTerm,
    AssignedPod,
    Failure,
    InFlightPod,
    QueuedPod,
)
from services.queue.core.results import NotInFlight, QueueClosed, Requeued, SubQueue, WouldBlock
from services.queue.core.rules.base import PreEnqueueCheck
from services.queue.core.rules.versions import QueueConfig
from services.queue.core.scheduling_queue import SchedulingQueue
from tests.builders import make_pod
from tests.unit.queue.builders import make_queued_pod, names, pop, seconds

WEB = LabelSelector(requirements=(Requirement(key="app", operator=Operator.IN, values=("web",)),))
FIT = Failure(plugins=("NodeResourcesFit",))


def queue_of(
    *pods: QueuedPod, hints: bool = True, pops_backoff: bool = True, lease_ns: int = 0
) -> SchedulingQueue:
    """Return a queue with upstream's plugins and `pods` added at 0."""
    queue = SchedulingQueue(
        QueueConfig(
            version="v1.34",
            queueing_hints=hints,
            pop_from_backoff_q=pops_backoff,
            registrations=IN_TREE,
            lease_ns=lease_ns,
        )
    )
    for pod in pods:
        queue.add(pod, now_ns=0)
    return queue


def refuse(queue: SchedulingQueue, failure: Failure = FIT, now_ns: int = 0) -> SubQueue:
    """Pop the next pod and give it back; return where it is."""
    popped = pop(queue, now_ns)
    outcome = queue.add_unschedulable(popped.id, now_ns=now_ns, failure=failure)
    assert isinstance(outcome, Requeued)
    return outcome.queue


def waiting(queue: SchedulingQueue) -> list[str]:
    """Return the unschedulable pods that no plugin gates."""
    return names(queue.first(SubQueue.UNSCHEDULABLE, 10))


def test_a_gated_pod_waits_until_its_last_gate_is_gone() -> None:
    """Its first attempt counts from when it is let in."""
    held = make_queued_pod("a")._replace(
        gates=("SchedulingGates",), spec=PodSpec(scheduling_gates=("g",))
    )
    queue = queue_of(held)
    assert queue.sizes()[SubQueue.GATED] == 1
    queue.move_all(ObjectEvent.of("NodeAdd"), now_ns=1)
    queue.flush_leftover(now_ns=seconds(1000))
    assert queue.pop(now_ns=seconds(1000)) == WouldBlock()
    free = held._replace(gates=(), spec=PodSpec())
    assert queue.update(held, free, now_ns=seconds(1001)) is SubQueue.ACTIVE
    popped = pop(queue, seconds(1002))
    assert (popped.initial_attempt_ns, popped.timestamp_ns) == (seconds(1001), 0)


def test_the_gating_plugin_is_remembered_and_runs_first() -> None:
    """A pod that another plugin gates as well waits for that one."""
    queue = queue_of(make_queued_pod("a")._replace(gates=("First", "Second")))
    (pod_info,) = queue.first(SubQueue.GATED, 1)
    assert (pod_info.gating_plugin, pod_info.failure) == ("First", Failure(plugins=("First",)))
    queue.set_gates(pod_info.pod.ref, ("Second", "First"), now_ns=1)
    queue.activate([pod_info.pod.ref], now_ns=2)
    assert queue.first(SubQueue.GATED, 1)[0].gating_plugin == "First"
    queue.set_gates(pod_info.pod.ref, ("Second",), now_ns=3)
    queue.activate([pod_info.pod.ref], now_ns=4)
    (pod_info,) = queue.first(SubQueue.GATED, 1)
    assert (pod_info.gating_plugin, pod_info.failure) == (
        "Second",
        Failure(plugins=("First", "Second")),
    )


def test_a_preemptor_is_held_until_its_victims_deletion_is_requested() -> None:
    """The first victim's end finds it gated; the next one, after the gate is gone, moves it."""
    queue = queue_of(make_queued_pod("preemptor"))
    popped = pop(queue)
    queue.add_unschedulable(popped.id, now_ns=0, failure=FIT, gates=("DefaultPreemption",))
    assert waiting(queue) == ["preemptor"]
    victim_gone = ObjectEvent.of("AssignedPodDelete")
    queue.move_all(victim_gone, now_ns=seconds(5))
    assert queue.sizes()[SubQueue.GATED] == 1
    assert queue.move_all(ObjectEvent.of("NodeAdd"), now_ns=seconds(6)) == 0
    queue.set_gates(popped.pod.ref, (), now_ns=seconds(7))
    assert queue.pop(now_ns=seconds(7)) == WouldBlock()
    assert queue.move_all(victim_gone, now_ns=seconds(8)) == 1
    assert pop(queue, seconds(8)).pod.name == "preemptor"


def test_gates_that_change_in_flight_hold_when_the_pod_comes_back() -> None:
    """PreEnqueue runs before a pod enters a sub-queue."""
    queue = queue_of(make_queued_pod("a"))
    popped = pop(queue)
    queue.set_gates(popped.pod.ref, ("DefaultPreemption",), now_ns=0)
    queue.move_all(ObjectEvent.of("NodeAdd"), now_ns=0)
    queue.add_unschedulable(popped.id, now_ns=0, failure=FIT)
    assert queue.sizes()[SubQueue.GATED] == 1


def test_an_update_in_flight_is_judged_when_the_pod_comes_back() -> None:
    """It is not queued a second time."""
    queue = queue_of(make_queued_pod("a"))
    popped = pop(queue)
    tolerant = popped.pod._replace(spec=PodSpec(), labels={"new": "label"})
    assert queue.update(popped.pod, tolerant, now_ns=1) is None
    assert queue.pending() == ()
    queue.add_unschedulable(popped.id, now_ns=2, failure=FIT, pod=tolerant)
    assert waiting(queue) == ["a"]


def test_an_update_without_effect_leaves_a_pod_in_its_place() -> None:
    """Pods stay ordered by timestamp, so the oldest pod is found at once after many updates."""
    pods = [make_queued_pod(name) for name in "abc"]
    for hints in (True, False):
        queue = queue_of(*pods, hints=hints)
        for second in range(3):
            refuse(queue, now_ns=seconds(second))
        for pod in pods[:2]:
            changed = pod._replace(nominated_node_name="n")
            assert queue.update(pod, changed, now_ns=seconds(3)) is SubQueue.UNSCHEDULABLE
        assert waiting(queue) == ["a", "b", "c"]
        assert queue.next_wakeup_ns(seconds(3)) == seconds(330)


def test_an_event_from_before_the_pop_moves_no_pod() -> None:
    """Only events after a pod's pop count when its cycle fails."""
    queue = queue_of(make_queued_pod("a"), make_queued_pod("b"))
    first = pop(queue)
    queue.move_all(ObjectEvent.of("NodeAdd"), now_ns=0)
    second = pop(queue)
    for popped, where in ((first, SubQueue.BACKOFF), (second, SubQueue.UNSCHEDULABLE)):
        outcome = queue.add_unschedulable(popped.id, now_ns=0, failure=FIT)
        assert outcome == Requeued(queue=where)
    assert queue.snapshot().hint_state.events == ()


def test_errors_have_a_backoff_of_their_own_that_is_not_popped_from() -> None:
    """Neither plugins nor a wait: the pod is tried again after its backoff."""
    queue = queue_of(make_queued_pod("a"))
    assert refuse(queue, Failure(error=True)) is SubQueue.ERROR_BACKOFF
    assert queue.pop(now_ns=1) == WouldBlock()
    assert queue.next_wakeup_ns(1) == seconds(2)
    assert queue.flush_backoff(now_ns=seconds(1)) == 0
    assert queue.flush_backoff(now_ns=seconds(2)) == 1


def test_a_refusal_ends_a_series_of_errors() -> None:
    """Errors in a row lengthen their own backoff only."""
    queue = queue_of(make_queued_pod("a"))
    for at_s in (0, 10, 30):
        refuse(queue, Failure(error=True), seconds(at_s))
        queue.flush_backoff(now_ns=seconds(at_s + 9))
    refuse(queue, FIT, seconds(60))
    (pod_info,) = queue.first(SubQueue.UNSCHEDULABLE, 1)
    assert (pod_info.attempts, pod_info.unschedulable_count, pod_info.consecutive_errors) == (
        4,
        1,
        0,
    )


def test_backoff_q_is_popped_from_once_active_q_is_empty() -> None:
    """In the order of the second in which backoffs end, then by priority."""
    queue = queue_of(*(make_queued_pod(name, priority=ord(name)) for name in "abc"))
    popped = [pop(queue) for _ in range(3)]
    queue.move_all(ObjectEvent.of("NodeAdd"), now_ns=0)
    for pod in popped:
        queue.add_unschedulable(pod.id, now_ns=0, failure=FIT)
    queue.add(make_queued_pod("new"), now_ns=0)
    assert names(queue.heads(9)) == ["new", "c", "b", "a"]
    assert [pop(queue).pod.name for _ in range(4)] == ["new", "c", "b", "a"]
    assert queue.take_incoming()[SubQueue.ACTIVE, "PopFromBackoffQ"] == 3


def test_a_pod_in_flight_that_is_added_again_is_not_popped_twice() -> None:
    """Pop drops the copy, and heads pass it over."""
    queue = queue_of(make_queued_pod("a", priority=9))
    popped = pop(queue)
    queue.add(popped.pod, now_ns=0)
    queue.add(make_queued_pod("b"), now_ns=0)
    assert names(queue.heads(9)) == ["b"]
    committed = queue.commit_pop(queue.heads(1)[0].id, now_ns=0)
    assert isinstance(committed, InFlightPod)
    assert (committed.pod.name, committed.cycle) == ("b", 2)
    assert queue.sizes()[SubQueue.ACTIVE] == 0


def test_activate_skips_the_backoff_and_is_remembered_in_flight() -> None:
    """When its cycle fails, a pod in flight backs off if it was activated meanwhile."""
    queue = queue_of(make_queued_pod("a"), make_queued_pod("b"))
    one, other = pop(queue), pop(queue)
    queue.activate([one.pod.ref], now_ns=0)
    queue.add_unschedulable(one.id, now_ns=0, failure=FIT)
    queue.add_unschedulable(other.id, now_ns=0, failure=FIT)
    assert names(queue.first(SubQueue.BACKOFF, 9)) == ["a"]
    assert waiting(queue) == ["b"]
    assert queue.activate([one.pod.ref, other.pod.ref], now_ns=1) == 2
    assert queue.sizes()[SubQueue.ACTIVE] == 2


def test_a_plugin_without_registrations_receives_every_event() -> None:
    """From its first refusal on; before that an event may be of interest to no plugin."""
    queue = queue_of(make_queued_pod("a"))
    assert queue.move_all(ObjectEvent.of("ServiceAdd"), now_ns=0) == 0
    assert queue.snapshot().move_request_cycle == -1
    refuse(queue, Failure(plugins=("Their own",)))
    again = SchedulingQueue.restore(QueueConfig(version="v1.34"), queue.snapshot())
    assert again.move_all(ObjectEvent.of("ServiceAdd"), now_ns=seconds(5)) == 1
    assert queue.move_all(ObjectEvent.of("ServiceAdd"), now_ns=seconds(5)) == 1


def test_a_filter_keeps_pods_back() -> None:
    """Those of a higher priority, and one by its UID."""
    queue = queue_of(*(make_queued_pod(name, priority=ord(name) - 97) for name in "abc"))
    for _ in "abc":
        refuse(queue)
    pre_check = PreEnqueueCheck(priority_at_most=1, all_but_uid="uid-a")
    assert queue.move_all(ObjectEvent.of("AssignedPodDelete"), now_ns=1, pre_check=pre_check) == 1
    assert sorted(waiting(queue)) == ["a", "c"]


def test_an_assigned_pod_moves_pods_whose_affinity_or_spread_it_may_satisfy() -> None:
    """By a required term, whose namespaces may be selected, or where spread refused them."""
    term = AffinityTerm(namespaces=(), selector=WEB, namespace_selector=WEB)
    affine = make_queued_pod("affine", affinity=(term,))
    queue = queue_of(affine, make_queued_pod("spread"), make_queued_pod("plain"))
    plugins = {"affine": "InterPodAffinity", "spread": "PodTopologySpread", "plain": "Other"}
    for _ in plugins:
        popped = pop(queue)
        failure = Failure(plugins=(plugins[popped.pod.name],))
        queue.add_unschedulable(popped.id, now_ns=0, failure=failure)
    far = AssignedPod(namespace="x", labels={"app": "web"}, namespace_labels={"app": "db"})
    assert queue.assigned_pod_added(far, now_ns=1) == 0
    selected = AssignedPod(namespace="x", labels={"app": "web"}, namespace_labels={"app": "web"})
    assert queue.assigned_pod_added(selected, now_ns=1) == 1
    near = AssignedPod(namespace="ns", labels={})
    assert queue.assigned_pod_updated(near, now_ns=1) == 0
    label_change = ObjectEvent.of("AssignedPodLabelChange")
    assert queue.assigned_pod_updated(near, now_ns=1, object_event=label_change) == 1
    assert waiting(queue) == ["plain"]


def test_an_assigned_pod_that_is_scaled_down_may_help_any_pod() -> None:
    """Not only pods with a matching term."""
    queue = queue_of(make_queued_pod("a")._replace(spec=make_pod("a").req(cpu="1").obj().spec))
    refuse(queue)
    near = AssignedPod(namespace="ns", labels={})
    label_change = ObjectEvent.of("AssignedPodUpdatePodLabel")
    assert queue.assigned_pod_updated(near, now_ns=1, object_event=label_change) == 0
    before = make_pod("b").req(cpu="4").node("n").obj()
    after = make_pod("b").req(cpu="2").node("n").obj()
    less = ObjectEvent.of("AssignedPodUpdatePodScaleDown", before, after)
    assert queue.assigned_pod_updated(near, now_ns=1, object_event=less) == 1


def test_a_closed_queue_drops_events_for_pods_in_flight() -> None:
    """Its pops still end, and a pod that comes back is tried again after its backoff."""
    queue = queue_of(make_queued_pod("a"))
    popped = pop(queue)
    queue.close()
    assert queue.snapshot().hint_state.pods == ()
    outcome = queue.add_unschedulable(popped.id, now_ns=0, failure=FIT)
    assert outcome == Requeued(queue=SubQueue.BACKOFF)
    assert pop(queue).pod.name == "a"
    assert queue.pop(now_ns=0) == QueueClosed()


def test_without_hints_a_pod_can_be_queued_while_it_is_in_flight() -> None:
    """As in older versions; adding it as unschedulable is then upstream's error."""
    queue = queue_of(make_queued_pod("a"), hints=False, pops_backoff=False)
    popped = pop(queue)
    assert queue.update(popped.pod, popped.pod, now_ns=0) is SubQueue.ACTIVE
    outcome = queue.add_unschedulable(popped.id, now_ns=0, failure=FIT)
    assert getattr(outcome, "text", "") == "Pod ns/a is already present in the active queue"


def test_an_expired_lease_returns_the_pod_to_its_former_place() -> None:
    """As if it had not been popped; the late holder's outcome names no pop."""
    queue = queue_of(
        make_queued_pod("a", priority=2), make_queued_pod("b", priority=1), lease_ns=seconds(10)
    )
    first, second = queue.pop(now_ns=0, owner="one"), queue.pop(now_ns=0, owner="two")
    assert isinstance(first, InFlightPod)
    assert isinstance(second, InFlightPod)
    assert queue.renew_leases("two", now_ns=seconds(5)) == 1
    assert queue.expire_leases(now_ns=seconds(10)) == 1
    assert queue.add_unschedulable(first.id, now_ns=seconds(10), failure=FIT) == NotInFlight()
    again = queue.pop(now_ns=seconds(10), owner="two")
    assert isinstance(again, InFlightPod)
    assert (again.pod.name, again.attempts, again.timestamp_ns) == ("a", 1, 0)
    assert [in_flight.owner for in_flight in queue.in_flight.values()] == ["two", "two"]


def test_pops_of_a_disconnected_owner_are_undone_in_order() -> None:
    """A pod that was queued again since is not queued twice."""
    queue = queue_of(*(make_queued_pod(name) for name in "abc"))
    for _ in "abc":
        queue.pop(now_ns=0, owner="gone")
    queue.add(make_queued_pod("b"), now_ns=seconds(1))
    assert queue.release_owner("gone", now_ns=seconds(2)) == 2
    assert queue.in_flight == {}
    assert queue.snapshot().hint_state.pods == ()
    assert names(queue.heads(9)) == ["a", "c", "b"]


def test_a_label_names_an_event_or_a_broader_one() -> None:
    """Old labels and new ones are equal; UPDATE covers narrower updates, not the reverse."""
    assert event_of("NodeTaintChange") == event_of("NodeUpdateNodeTaint")
    assert event_of("AssignedPodLabelChange") == event_of("AssignedPodUpdatePodLabel")
    assert event_of("NodeUpdate").covers(event_of("NodeLabelChange"))
    assert not event_of("NodeLabelChange").covers(event_of("NodeUpdate"))
    assert event_of("Pod").covers(event_of("UnschedulablePodUpdate"))
    assert not event_of("AssignedPodDelete").covers(event_of("PodDelete"))
    assert event_of("*").covers(event_of("PvAdd"))
    assert not event_of("Node").covers(event_of("UnschedulableTimeout"))
    assert event_of("foos.v1.example.com") == event_of("foos.v1.example.comAll")


def test_a_pending_plugins_word_skips_the_backoff() -> None:
    """A refusing plugin's does not, and both together go the faster way."""
    registered = tuple(
        Registration(plugin=plugin, event=event_of("NodeAdd")) for plugin in ("No", "Wait")
    )
    queue = SchedulingQueue(QueueConfig(version="v1.34", registrations=registered))
    for name, failure, where in (
        ("a", Failure(plugins=("No",)), SubQueue.BACKOFF),
        ("b", Failure(pending_plugins=("Wait",)), SubQueue.ACTIVE),
        ("c", Failure(plugins=("No",), pending_plugins=("Wait",)), SubQueue.ACTIVE),
    ):
        queue.add(make_queued_pod(name), now_ns=0)
        popped = queue.commit_pop(queue.heads(1)[0].id, now_ns=0)
        assert isinstance(popped, InFlightPod)
        queue.add_unschedulable(popped.id, now_ns=0, failure=failure)
        queue.move_all(ObjectEvent.of("NodeAdd"), now_ns=0)
        assert popped.pod.name in names(queue.first(where, 9))
        queue.delete(popped.pod.ref, now_ns=0)
