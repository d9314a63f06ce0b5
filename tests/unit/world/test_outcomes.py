"""Carrying out what the scheduler decided."""

from __future__ import annotations

import pytest

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
        (each.status, each.reason, each.message)
        for each in world.pod(name).message.status.conditions
        if each.type == type_
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


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (refused_gone, 'no pod has the uid "uid-p"'),
        (refused_terminating, "pod low is being deleted, cannot be assigned to a host"),
        (refused_assigned, "pod low is already assigned to node 'n'"),
        (refused_node, 'nodes "gone" not found'),
        (refused_gated, "pod p has non-empty .spec.schedulingGates"),
    ],
)
def test_a_binding_is_refused(outcome, words: str) -> None:  # type: ignore[no-untyped-def] # a function above
    """In the API server's words; nothing changes, but a pod may leave the scheduler's snapshot."""
    world = make_world()
    refused = outcome(world)
    world.events()
    version = world.cluster.snapshot_version + words.startswith("no pod")
    (answer,) = apply(world, refused)
    assert (answer.refused, answer.message) == (scheduler_pb2.REFUSAL_STAGE_BIND, words)
    assert (world.events(), world.cluster.snapshot_version) == ([], version)
    assert [each.refused for each in world.entries if each.refused] == (
        [] if words.startswith("no pod") else [words]
    )


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
    cleared = [each for each in world.entries if each.observed.HasField("nominated")]
    assert [each.observed.nominated.node_name for each in cleared] == [""]


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
        each.observed.removed.cause for each in world.entries if each.observed.HasField("removed")
    ]
    assert removed == ["preempted", "preempted"]


def test_victims_that_are_gone_or_terminating_already_are_left_alone() -> None:
    """Neither is a refusal."""
    world = make_world()
    world.feed(0, delete("Pod", "low"), delete("Pod", "other", grace_s=0))
    world.events()
    (answer,) = apply(world, unschedulable("uid-p", node="n", victims=["uid-low", "uid-other"]))
    assert answer.refused == 0
    assert [event.patch.pod.name for event in world.cluster.take_events()] == ["p"]
    conditions = [each.type for each in world.pod("low").message.status.conditions]
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
    world.feed(0, delete("Pod", "p"))
    world.events()
    answers = apply(
        world,
        unschedulable("uid-p", node="n", victims=["uid-low"]),
        unschedulable("uid-p"),
        failure("uid-p"),
    )
    assert [answer.refused for answer in answers] == [scheduler_pb2.REFUSAL_STAGE_NOMINATE, 0, 0]
    assert answers[0].message == 'no pod has the uid "uid-p"'
    assert not world.pod("low").is_terminating
    assert world.events() == []


def waits(world: World) -> list[int]:
    """Return how long each pod that was bound had waited, in seconds."""
    bound = [each.observed.scheduled for each in world.entries if not each.refused]
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
    (nominated,) = (each.observed.nominated for each in world.entries if _nominates(each))
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
    told = refusals("uid-q", "uid-gone", "uid-p", messages=("none", "lost", "full"))
    assert apply(world, told) == []
    assert condition(world, "q", "PodScheduled") == ("False", "Unschedulable", "none")
    assert condition(world, "p", "PodScheduled") == ("False", "Unschedulable", "full")
    assert world.events() == ["patch", "patch"]
    failed = [each.observed.failed_scheduling for each in world.entries]
    assert [(each.message, each.attempts) for each in failed] == [("none", 1), ("full", 3)]
    assert [each.sequence for each in world.entries] == [1, 2]
    assert apply(world, told) == []
    assert world.events() == []
    assert world.cluster.all_tried()


def test_a_nomination_that_a_refusal_clears_is_logged_after_its_attempt() -> None:
    """Among the attempts that are reported with it."""
    world = make_world()
    world.feed(0, create_pod(make_pod("q")))
    world.pod("p").message.status.nominated_node_name = "n"
    told = refusals("uid-p", "uid-q")
    told.refusals.verdicts[0].clear_nomination.SetInParent()
    apply(world, told)
    assert not world.pod("p").message.status.nominated_node_name
    kinds = [
        (each.observed.WhichOneof("observed"), each.observed.object.name) for each in world.entries
    ]
    assert kinds == [("failed_scheduling", "p"), ("nominated", "p"), ("failed_scheduling", "q")]
    assert [each.sequence for each in world.entries] == [1, 2, 3]
