"""Carrying out what the scheduler decided."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from replay.world.api.cluster import Cluster
from replay.world.api.pod_record import new_pod
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import (
    S,
    World,
    bind,
    create,
    create_pod,
    delete,
    failure,
    make_budget,
    make_node,
    make_pod,
    unschedulable,
    update,
)


def make_world() -> World:
    """Return a world with a node, a pending pod "p", and running pods "low" and "other" on it."""
    world = World()
    world.feed(
        0,
        create(make_node()),
        create_pod(make_pod()),
        create_pod(make_pod("low", node="n", priority=-1, ready=True)),
        create_pod(make_pod("other", node="n", priority=-1, ready=True)),
    )
    world.events()
    return world


def apply(world: World, *outcomes: scheduler_pb2.Outcome) -> list[scheduler_pb2.Answer]:
    """Carry out outcomes at 1 s."""
    return world.outcomes.apply(S, outcomes)


def condition(world: World, name: str, type_: str) -> tuple[str, str, str]:
    """Return status, reason and message of a pod's condition."""
    return next(
        (condition.status, condition.reason, condition.message)
        for condition in world.pod(name).message.status.conditions
        if condition.type == type_
    )


def test_a_binding_is_applied_and_the_kubelet_sees_it() -> None:
    """The answer has no refusal, the pod waits no more, the patch is an event to come."""
    world = make_world()
    (answer,) = apply(world, bind("uid-p", "n"))
    assert (answer.pop.uid, answer.pop.cycle, answer.refused) == ("uid-p", 1, 0)
    assert world.pod("p").node_name == "n"
    assert world.cluster.pending == {}
    assert condition(world, "p", "PodScheduled")[0] == "True"
    assert world.events() == ["patch"]
    world.run_until(S)
    assert world.pod("p").running_ns == S


def refused_gone(world: World) -> scheduler_pb2.Outcome:
    """Let the pod go before its binding."""
    world.feed(S, delete("Pod", "p"))
    return bind("uid-p", "n")


def refused_terminating(world: World) -> scheduler_pb2.Outcome:
    """Bind a pod that is being deleted."""
    world.feed(S, delete("Pod", "low"))
    return bind("uid-low", "n")


def refused_assigned(_: World) -> scheduler_pb2.Outcome:
    """Bind a pod that has a node."""
    return bind("uid-low", "n")


def refused_node(_: World) -> scheduler_pb2.Outcome:
    """Bind to a node that is not there."""
    return bind("uid-p", "gone")


def refused_gated(world: World) -> scheduler_pb2.Outcome:
    """Bind a pod that is held."""
    world.pod("p").message.spec.scheduling_gates.add(name="g")
    return bind("uid-p", "n")


REFUSED = [
    (refused_gone, 'no pod has the uid "uid-p"', "unknown pod"),
    (
        refused_terminating,
        "pod low is being deleted, cannot be assigned to a host",
        "terminating pod",
    ),
    (refused_assigned, "pod low is already assigned to node 'n'", "assigned pod"),
    (refused_node, 'nodes "gone" not found', "unknown node"),
    (refused_gated, "pod p has non-empty .spec.schedulingGates", "gated pod"),
]


def refused_entries(world: World) -> list[tuple[str, str, str]]:
    """Return kind, message and cause of the log's refused decisions."""
    return [
        (entry.observed.WhichOneof("observed") or "", entry.refused, entry.refusal_cause)
        for entry in world.entries
        if entry.refused
    ]


@pytest.mark.parametrize(("outcome", "words", "cause"), REFUSED)
def test_a_binding_that_was_ruled_out_when_it_was_decided_is_a_mistake(
    outcome: Callable[[World], scheduler_pb2.Outcome], words: str, cause: str
) -> None:
    """In the API server's words; nothing changes, but a pod may leave the scheduler's snapshot."""
    world = make_world()
    refused = outcome(world)
    world.events()
    version = world.cluster.snapshot_version + words.startswith("no pod")
    (answer,) = apply(world, refused)
    assert (answer.refused, answer.message) == (scheduler_pb2.REFUSAL_STAGE_BIND, words)
    assert (world.events(), world.cluster.snapshot_version) == ([], version)
    assert refused_entries(world) == [("scheduled", words, cause)]


@pytest.mark.parametrize(("outcome", "words", "cause"), REFUSED)
def test_a_binding_is_no_mistake_where_the_end_of_its_pod_or_node_was_not_sent_yet(
    outcome: Callable[[World], scheduler_pb2.Outcome], words: str, cause: str
) -> None:
    """It is refused all the same; a pod that has gone by then has no entry."""
    world = make_world()
    refused = outcome(world)
    if cause == "unknown node":
        world.feed(S, create(make_node("gone")))
        world.events()
        world.feed(S, delete("Node", "gone"))
    (answer,) = apply(world, refused)
    assert (answer.refused, answer.message) == (scheduler_pb2.REFUSAL_STAGE_BIND, words)
    races = ("unknown pod", "unknown node", "terminating pod")
    seen = [("scheduled", words, "" if cause in races else cause)]
    assert refused_entries(world) == (seen if cause != "unknown pod" else [])


def test_a_pop_that_is_decided_twice_in_a_response_is_refused_the_second_time() -> None:
    """Whatever the second decision is."""
    world = make_world()
    preempting = unschedulable("uid-p", node="n", victims=["uid-low"])
    answers = apply(world, bind("uid-p", "n"), bind("uid-p", "n"), preempting, failure("uid-p"))
    stages = [0, scheduler_pb2.REFUSAL_STAGE_BIND, scheduler_pb2.REFUSAL_STAGE_NOMINATE, 0]
    assert [answer.refused for answer in answers] == stages
    kinds = [(kind, cause) for kind, _, cause in refused_entries(world)]
    failed = ("failed_scheduling", "decided twice")
    assert kinds == [("scheduled", "decided twice"), failed, failed]
    assert not world.pod("low").is_terminating


def test_an_attempt_of_a_pod_with_a_node_changes_nothing() -> None:
    """Neither its condition nor its nomination, nor do its victims go."""
    world = make_world()
    preempting = unschedulable("uid-low", node="n", victims=["uid-other"])
    (answer,) = apply(world, preempting)
    assert answer.refused == scheduler_pb2.REFUSAL_STAGE_NOMINATE
    assert world.events() == []
    words = "pod low is already assigned to node 'n'"
    assert refused_entries(world) == [("failed_scheduling", words, "assigned pod")]


def test_an_attempt_of_a_pod_that_never_was_is_a_mistake_also_among_others() -> None:
    """The other pods of these refusals have their status."""
    world = make_world()
    assert apply(world, refusals("uid-nobody", "uid-p")) == []
    words = 'no pod has the uid "uid-nobody"'
    assert refused_entries(world) == [("failed_scheduling", words, "unknown pod")]
    assert condition(world, "p", "PodScheduled") == ("False", "Unschedulable", "no")


@pytest.mark.parametrize(
    ("victim", "words", "cause"),
    [
        ("uid-far", "pod far is on m, not on n", "victim elsewhere"),
        ("uid-q", "pod q is on no node, not on n", "victim elsewhere"),
        ("uid-nobody", 'no pod has the uid "uid-nobody"', "unknown victim"),
    ],
)
def test_a_victim_that_is_not_on_the_node_ends_the_deletions(
    victim: str, words: str, cause: str
) -> None:
    """Those before it are deleted, those after it are not; the answer names it."""
    world = make_world()
    world.feed(0, create(make_node("m")), create_pod(make_pod("q")))
    world.feed(0, create_pod(make_pod("far", node="m", priority=-1, ready=True)))
    world.events()
    victims = ["uid-low", victim, "uid-other"]
    (answer,) = apply(world, unschedulable("uid-p", node="n", victims=victims))
    assert (answer.refused, answer.victim.uid) == (
        scheduler_pb2.REFUSAL_STAGE_DELETE_VICTIM,
        victim,
    )
    assert refused_entries(world) == [("preempted", words, cause)]
    terminating = [name for name in ("low", "other", "far") if world.pod(name).is_terminating]
    assert terminating == ["low"]


@pytest.mark.parametrize("kind", ["bind", "preempt"])
def test_a_decision_that_is_carried_out_later_has_the_mistake_of_its_own_time(kind: str) -> None:
    """What changes until then is no mistake; what was ruled out at first stays one."""
    for name, cause in (("uid-p", ""), ("uid-nobody", "unknown pod")):
        world = make_world()
        outcome = bind(name, "n") if kind == "bind" else unschedulable(name, victims=["uid-low"])
        mistake = world.outcomes.mistake_of(outcome)
        world.feed(S, delete("Pod", "p"))
        world.events()
        world.outcomes.apply(2 * S, [outcome], mistake)
        causes = [seen for *_, seen in refused_entries(world)]
        assert causes == ([cause] if cause != "" else [])


def test_two_bindings_of_one_pod_are_one_and_a_refusal() -> None:
    """Outcomes are carried out in their order."""
    world = make_world()
    answers = apply(world, bind("uid-p", "n"), bind("uid-p", "n", cycle=2))
    assert [answer.refused for answer in answers] == [0, scheduler_pb2.REFUSAL_STAGE_BIND]


def test_a_pod_that_fits_nowhere_gets_the_reason_once() -> None:
    """Nothing is written where nothing differs."""
    world = make_world()
    apply(world, unschedulable("uid-p", "0/1 nodes"))
    assert condition(world, "p", "PodScheduled") == ("False", "Unschedulable", "0/1 nodes")
    assert world.events() == ["patch"]
    apply(world, unschedulable("uid-p", "0/1 nodes"))
    assert world.events() == []
    assert world.cluster.all_tried()
    assert [what for _, what, _ in world.log()] == ["failed_scheduling"] * 2


def test_a_failed_attempt_counts_as_tried_and_leaves_the_nomination() -> None:
    """With the reason SchedulerError."""
    world = make_world()
    apply(world, unschedulable("uid-p", node="n"))
    apply(world, failure("uid-p"))
    assert condition(world, "p", "PodScheduled") == ("False", "SchedulerError", "boom")
    assert world.pod("p").message.status.nominated_node_name == "n"
    assert world.cluster.all_tried()


@pytest.mark.parametrize(("ends", "nominated"), [(False, "n"), (True, "")])
def test_a_binding_may_end_the_nomination(*, ends: bool, nominated: str) -> None:
    """It does since v1.35; before, the kubelet's first status does."""
    cluster = Cluster(binding_ends_nomination=ends)
    pod, added = new_pod(0, make_pod("p"), trace_pb2.PodLife())
    cluster.create_pod(pod, added)
    pod.message.status.nominated_node_name = "n"
    cluster.bind(0, pod, "n")
    assert pod.message.status.nominated_node_name == nominated
    assert cluster.events[-1].patch.status.nominated_node_name == nominated


def test_a_nomination_is_written_left_alone_or_cleared() -> None:
    """Absent leaves it, "" clears it."""
    world = make_world()
    status = world.pod("p").message.status
    apply(world, unschedulable("uid-p", node="n"))
    assert status.nominated_node_name == "n"
    apply(world, unschedulable("uid-p"))
    assert status.nominated_node_name == "n"
    apply(world, unschedulable("uid-p", node=""))
    assert status.nominated_node_name == ""
    cleared = [entry for entry in world.entries if entry.observed.HasField("nominated")]
    assert [entry.observed.nominated.node_name for entry in cleared] == [""]


def test_a_preemption_marks_and_deletes_its_victims_in_order() -> None:
    """After the preemptor's own status, and with its scheduler's name in the condition."""
    world = make_world()
    world.pod("p").message.spec.scheduler_name = "mine"
    (answer,) = apply(world, unschedulable("uid-p", node="n", victims=["uid-low", "uid-other"]))
    assert answer.refused == 0
    assert [event.patch.pod.name for event in world.cluster.take_events()] == ["p", "low", "other"]
    assert condition(world, "low", "DisruptionTarget") == (
        "True",
        "PreemptionByScheduler",
        "mine: preempting to accommodate a higher priority pod",
    )
    assert world.pod("low").is_terminating
    assert world.log() == [
        (1, "failed_scheduling", "p"),
        (1, "nominated", "p"),
        (1, "preempted", "low"),
        (1, "preempted", "other"),
    ]
    world.run_until(100 * S)
    removed = [
        entry.observed.removed.cause
        for entry in world.entries
        if entry.observed.HasField("removed")
    ]
    assert removed == ["preempted", "preempted"]


def test_victims_that_are_gone_or_terminating_already_are_left_alone() -> None:
    """Neither is a refusal, where the scheduler was not sent yet that the pod has gone."""
    world = make_world()
    world.events()
    world.feed(0, delete("Pod", "low"), delete("Pod", "other", grace_s=0))
    (answer,) = apply(world, unschedulable("uid-p", node="n", victims=["uid-low", "uid-other"]))
    assert answer.refused == 0
    assert [event.patch.pod.name for event in world.cluster.take_events()][-1] == "p"
    conditions = [condition.type for condition in world.pod("low").message.status.conditions]
    assert "DisruptionTarget" not in conditions


def test_lower_nominations_are_cleared_before_the_victims_go() -> None:
    """Of pods that are still nominated, once each."""
    world = make_world()
    world.feed(0, create_pod(make_pod("weak", priority=-1)))
    world.events()
    apply(world, unschedulable("uid-weak", node="n"))
    world.events()
    preempting = unschedulable(
        "uid-p", node="n", victims=["uid-low"], cleared=["uid-weak", "uid-gone", "uid-other"]
    )
    apply(world, preempting)
    assert [event.patch.pod.name for event in world.cluster.take_events()] == ["p", "weak", "low"]
    assert world.pod("weak").message.status.nominated_node_name == ""


def test_a_preemptor_that_has_gone_gets_no_nomination_and_spares_its_victims() -> None:
    """The refusal names its stage; a mere verdict needs none."""
    world = make_world()
    world.events()
    world.feed(0, delete("Pod", "p"))
    outcomes = (
        unschedulable("uid-p", node="n", victims=["uid-low"]),
        unschedulable("uid-p"),
        failure("uid-p"),
    )
    answers = [answer for outcome in outcomes for answer in apply(world, outcome)]
    world.events()
    assert [answer.refused for answer in answers] == [scheduler_pb2.REFUSAL_STAGE_NOMINATE, 0, 0]
    assert answers[0].message == 'no pod has the uid "uid-p"'
    assert not world.pod("low").is_terminating
    assert world.events() == []


def waits(world: World) -> list[int]:
    """Return how long each pod that was bound had waited, in seconds."""
    bound = [entry.observed.scheduled for entry in world.entries if not entry.refused]
    return [scheduled.waited_duration_ns // S for scheduled in bound]


def test_a_pod_waits_from_its_creation_whatever_the_scheduler_reports() -> None:
    """Also where the scheduler leaves the time of the first enqueueing out."""
    world = make_world()
    world.feed(2 * S, create_pod(make_pod("q")))
    outcomes = bind("uid-p", "n"), bind("uid-q", "n")
    outcomes[1].first_enqueued_time_ns = 7 * S
    world.outcomes.apply(7 * S, outcomes)
    assert waits(world) == [7, 5]


def test_a_gated_pod_waits_from_when_its_last_scheduling_gate_is_removed() -> None:
    """Which is when kube-scheduler v1.34 first enqueues it; further updates change nothing."""
    world = World()
    world.feed(0, create(make_node()))
    for seconds, gates in ((1, "ab"), (2, "b"), (3, ""), (4, "")):
        pod = make_pod("g")
        for gate in gates:
            pod.spec.scheduling_gates.add(name=gate)
        world.feed(seconds * S, create_pod(pod) if seconds == 1 else update(pod))
    world.outcomes.apply(8 * S, [bind("uid-g", "n")])
    assert waits(world) == [5]


@pytest.mark.parametrize("reported", [False, True])
def test_a_deletion_violates_a_budget_whose_status_allows_no_further_one(*, reported: bool) -> None:
    """Three pods may be two: the first victim is allowed, the second is not, until a new status."""
    world = make_world()
    labels = {"app": "web"}
    world.feed(0, create(make_budget(min_available=2)))
    for name in ("a", "b", "c"):
        world.feed(0, create_pod(make_pod(name, node="n", priority=-1, labels=labels, ready=True)))
    assert world.status().disruptions_allowed == 1
    preempting = unschedulable("uid-p", node="n", victims=["uid-a", "uid-b", "uid-low"])
    for victim in preempting.unschedulable.preemption.victims:
        victim.violates_budget = reported
    apply(world, preempting)
    seen = {
        entry.observed.object.name: entry.observed.preempted.violates_budget
        for entry in world.entries
        if entry.observed.HasField("preempted")
    }
    assert seen == {"a": False, "b": True, "low": False}
    world.settle(S)
    world.feed(2 * S, create_pod(make_pod("d", node="n", priority=-1, labels=labels, ready=True)))
    world.feed(2 * S, create_pod(make_pod("e", node="n", priority=-1, labels=labels, ready=True)))
    assert world.status().disruptions_allowed == 1
    apply(world, unschedulable("uid-p", node="n", victims=["uid-c"]))
    assert not world.entries[-1].observed.preempted.violates_budget


def test_victims_have_the_names_that_they_have_in_the_cluster() -> None:
    """An answer's names are not read: the UID alone identifies a victim."""
    world = make_world()
    preempting = unschedulable("uid-p", node="n", victims=["uid-low", "uid-other"])
    preempting.unschedulable.preemption.victims[0].pod.name = "nobody"
    apply(world, preempting)
    (nominated,) = (entry.observed.nominated for entry in world.entries if _nominates(entry))
    assert [victim.name for victim in nominated.victims] == ["low", "other"]


def _nominates(entry: trace_pb2.Decision) -> bool:
    return entry.observed.HasField("nominated")


def refusals(*uids: str, messages: tuple[str, ...] = ("no",)) -> scheduler_pb2.Outcome:
    """Return the outcome of pods that were refused; the last message is all others'."""
    outcome = scheduler_pb2.Outcome()
    for message in messages:
        outcome.refusals.verdicts.add(message=message)
    for place, uid in enumerate(uids):
        outcome.refusals.uids.append(uid)
        outcome.refusals.attempts.append(place + 1)
        outcome.refusals.verdict_indexes.append(min(place, len(messages) - 1))
    return outcome


def test_pods_that_were_refused_together_get_each_their_status() -> None:
    """In their order, without an answer; nothing is written again, nor for a pod that has gone."""
    world = make_world()
    world.feed(0, create_pod(make_pod("q")))
    world.events()
    world.feed(0, create_pod(make_pod("gone")))
    world.events()
    world.feed(0, delete("Pod", "gone"))
    refused = refusals("uid-q", "uid-gone", "uid-p", messages=("none", "lost", "full"))
    assert apply(world, refused) == []
    assert condition(world, "q", "PodScheduled") == ("False", "Unschedulable", "none")
    assert condition(world, "p", "PodScheduled") == ("False", "Unschedulable", "full")
    assert world.events() == ["remove", "patch", "patch"]
    entries = [entry for entry in world.entries if entry.observed.HasField("failed_scheduling")]
    failed = [entry.observed.failed_scheduling for entry in entries]
    assert [(attempt.message, attempt.attempts) for attempt in failed] == [("none", 1), ("full", 3)]
    assert [entry.sequence for entry in world.entries] == [1, 2, 3]
    assert apply(world, refusals("uid-q", "uid-p", messages=("none", "full"))) == []
    assert world.events() == []
    assert world.cluster.all_tried()


def test_a_nomination_that_a_refusal_clears_is_logged_after_its_attempt() -> None:
    """Among the attempts that are reported with it."""
    world = make_world()
    world.feed(0, create_pod(make_pod("q")))
    world.pod("p").message.status.nominated_node_name = "n"
    refused = refusals("uid-p", "uid-q")
    refused.refusals.verdicts[0].ends_nomination.SetInParent()
    apply(world, refused)
    assert not world.pod("p").message.status.nominated_node_name
    kinds = [
        (entry.observed.WhichOneof("observed"), entry.observed.object.name)
        for entry in world.entries
    ]
    assert kinds == [("failed_scheduling", "p"), ("nominated", "p"), ("failed_scheduling", "q")]
    assert [entry.sequence for entry in world.entries] == [1, 2, 3]
