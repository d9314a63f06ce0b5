"""A whole scheduler with plugins made for the test: what their answers do to a decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from services.framework.plugin import (
    PermitPlugin,
    PodColumnsPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    ReservePlugin,
)
from services.framework.plugins.in_tree import SERVED
from services.framework.preemption.candidates import TieBreak
from services.framework.preemption.outcome import CannotHelp, Cause, FailedCycle, Nomination
from services.framework.profile import PluginSetting, Profile
from services.framework.runtime.diagnosis import Unschedulable
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.framework.waiting_pods import Wait
from services.kube.pod import Pod
from services.kube.selector import NodeSelectorTerm
from services.kube.time import SECOND_NS as S
from services.scheduler.core.decisions import (
    Binding,
    Decision,
    Failed,
    HeldAtPermit,
    Skipped,
    Stage,
)
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.queueing.steps import (
    AddUnschedulable,
    CommitPop,
    CommitUnschedulable,
    DeleteNomination,
    Done,
    Head,
    Move,
    PopId,
    WhyFailed,
)
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler
from tests.builders import make_node, make_pod, requirement


class Seats(ReservePlugin, PermitPlugin, PreBindPlugin, PodColumnsPlugin):
    """Counts pods in one column and reservations in another; a label refuses a pod."""

    name = "Seats"

    def pod_came(self, pod: Pod, row: int, snapshot: Snapshot) -> None:  # noqa: ARG002 - all alike
        """Count it."""
        snapshot.columns.owned("seats")[row] += 1

    def pod_went(self, pod: Pod, row: int, snapshot: Snapshot) -> None:  # noqa: ARG002 - all alike
        """Take it out."""
        snapshot.columns.owned("seats")[row] -= 1

    def reserve(self, pod: Pod, row: int, snapshot: Snapshot) -> Status | None:
        """Reserve."""
        snapshot.columns.owned("reserved")[row] += 1
        return self._said(pod, "reserve")

    def unreserve(self, pod: Pod, row: int, snapshot: Snapshot) -> None:  # noqa: ARG002 - all alike
        """Give it back."""
        snapshot.columns.owned("reserved")[row] -= 1

    def permit(self, pod: Pod, row: int, snapshot: Snapshot) -> Status | None:  # noqa: ARG002 - unused
        """Permit."""
        return self._said(pod, "permit")

    def pre_bind(self, pod: Pod, node_name: str) -> Status | None:  # noqa: ARG002 - unused
        """Prepare."""
        return self._said(pod, "prebind")

    def _said(self, pod: Pod, point: str) -> Status | None:
        code = pod.labels.get(point)
        return Status(code=Code[code], plugin=self.name, reasons=("no seat",)) if code else None


class Sulk(PostFilterPlugin):
    """Never helps."""

    name = "Sulk"

    def post_filter(
        self,
        pod: Pod,  # noqa: ARG002 - unused
        cycle: FailedCycle,
        *,
        tie_break: TieBreak,  # noqa: ARG002 - unused
        now_ns: int,  # noqa: ARG002 - unused
    ) -> Nomination | CannotHelp:
        """Say on how many nodes."""
        said = f"sulking on {cycle.node_count()}"
        return CannotHelp(
            cause=Cause.NO_CANDIDATE, reason=said, message=said, clear_nomination=True
        )


class Doors(PermitPlugin):
    """Holds every pod for a minute."""

    name = "Doors"

    def permit(self, pod: Pod, row: int, snapshot: Snapshot) -> Wait:  # noqa: ARG002 - all alike
        """Hold it."""
        return Wait(60 * S)


class LockedDoors(Doors):
    """The same, under another name, for an hour."""

    name = "LockedDoors"

    def permit(self, pod: Pod, row: int, snapshot: Snapshot) -> Wait:  # noqa: ARG002 - all alike
        """Hold it."""
        return Wait(3600 * S)


REGISTRY = {**SERVED, "Seats": Seats, "Sulk": Sulk, "Doors": Doors, "LockedDoors": LockedDoors}


def scheduler_with(*names: str, queue: str = "v1.34", **options: Any) -> Scheduler:
    """Return a scheduler of two nodes, with NodeResourcesFit and the named plugins."""
    plugins = tuple(PluginSetting(name=name) for name in ("NodeResourcesFit", *names))
    ticks = count(0, 10)
    made = Scheduler(
        SchedulerOptions(
            rules=RULES["v1.34"],
            queue=QUEUE_TRAITS[queue],
            profiles=(Profile(plugins=plugins),),
            **options,
        ),
        registry=REGISTRY,
        stopwatch=lambda: next(ticks),
    )
    for name in "ab":
        made.put_node(make_node(name).capacity(cpu="4", memory="8Gi").obj())
    return made


def decide(scheduler: Scheduler, pod: Pod, cycle: int = 1) -> Decision:
    """Send the scheduler a pod and return its decision."""
    scheduler.put_pod(pod)
    head = Head(pop=PopId(pod.uid, cycle), attempts=1, first_enqueued_ns=0, queued_ns=0)
    return scheduler.decide(head, 0)


def column(scheduler: Scheduler, name: str) -> int:
    """Return the sum of an owned column."""
    return int(scheduler.snapshot.columns.owned(name).sum())


def columns(scheduler: Scheduler) -> tuple[int, int]:
    """Return the pods that Seats counts and its reservations."""
    return column(scheduler, "seats"), column(scheduler, "reserved")


def requeued(decision: Decision) -> CommitUnschedulable:
    """Return how the pod went back to the queue."""
    return next(step for step in decision.steps if isinstance(step, CommitUnschedulable))


@pytest.mark.parametrize("point", ["reserve", "permit"])
def test_a_refusal_before_the_binding_is_unschedulable_by_its_plugin(point: str) -> None:
    """The chosen node alone is counted, and the nomination goes."""
    scheduler = scheduler_with("Seats")
    decision = decide(scheduler, make_pod().label(point, "UNSCHEDULABLE").nominated("a").obj())
    verdict = decision.verdict
    assert isinstance(verdict, Unschedulable)
    assert verdict.message == "0/1 nodes are available: 1 no seat."
    assert (verdict.plugins, verdict.reasons) == (("Seats",), (("no seat", 1),))
    assert verdict.nominated_node_name == ""
    assert requeued(decision).why.plugins == ("Seats",)
    assert not requeued(decision).why.is_error
    assert any(isinstance(step, DeleteNomination) for step in decision.steps)
    assert columns(scheduler) == (0, 0)


def test_a_refusal_by_pre_bind_waits_for_no_plugin_and_moves_the_others() -> None:
    """It is part of the binding cycle: the pod that was assumed counts as deleted."""
    scheduler = scheduler_with("Seats")
    decision = decide(scheduler, make_pod().label("prebind", "UNSCHEDULABLE").obj())
    assert isinstance(decision.verdict, Unschedulable)
    assert (decision.verdict.message, decision.verdict.plugins) == ("no seat", ())
    assert requeued(decision).why.is_error
    assert isinstance(decision.steps[-1], Move)
    assert columns(scheduler) == (0, 0)


@pytest.mark.parametrize("point", ["reserve", "permit", "prebind"])
def test_an_error_stays_an_error(point: str) -> None:
    """No plugin is waited for."""
    scheduler = scheduler_with("Seats")
    decision = decide(scheduler, make_pod().label(point, "ERROR").obj())
    assert decision.verdict == Failed(message="running plugin 'Seats': no seat")
    assert requeued(decision).why.is_error
    assert columns(scheduler) == (0, 0)


def held_by_both(*, prebind: str = "") -> tuple[Scheduler, Decision]:
    """Return a scheduler with a pod that two plugins hold."""
    scheduler = scheduler_with("Seats", "Doors", "LockedDoors")
    pod = make_pod().label("prebind", prebind).obj() if prebind else make_pod().obj()
    decision = decide(scheduler, pod)
    assert isinstance(decision.verdict, HeldAtPermit)
    assert [type(step) for step in decision.steps] == [CommitPop]
    assert (columns(scheduler), scheduler.resolve(S)) == ((1, 1), [])
    return scheduler, decision


def test_a_pod_goes_on_when_every_plugin_that_holds_it_has_allowed_it() -> None:
    """It is assumed meanwhile, and bound then; the queue needs no step before the answer."""
    scheduler, held = held_by_both()
    uid = held.head.pop.uid
    scheduler.waiting.allow(uid, "Doors")
    scheduler.waiting.allow(uid, "Doors")
    assert scheduler.resolve(2 * S) == []
    scheduler.waiting.allow(uid, "LockedDoors")
    (bound,) = scheduler.resolve(2 * S)
    assert isinstance(bound.verdict, Binding)
    assert isinstance(held.verdict, HeldAtPermit)
    assert (bound.verdict, bound.head, bound.steps) == (held.verdict.binding, held.head, ())
    assert columns(scheduler) == (1, 1)
    assert scheduler.answer(held.head.pop, None) == [Done(held.head.pop)]


def test_the_first_time_out_refuses_a_pod_in_its_plugins_name() -> None:
    """A wait is 15 minutes at most. The pod that was assumed counts as deleted."""
    scheduler, held = held_by_both()
    assert scheduler.waiting.next_deadline_ns == 60 * S
    scheduler.waiting.allow(held.head.pop.uid, "Doors")
    assert scheduler.waiting.next_deadline_ns == 900 * S
    assert scheduler.resolve(900 * S - 1) == []
    (refused,) = scheduler.resolve(900 * S)
    assert isinstance(refused.verdict, Unschedulable)
    text = "rejected due to timeout after waiting 15m0s at plugin LockedDoors"
    assert refused.verdict.message == f"0/1 nodes are available: 1 {text}."
    requeued_, move = refused.steps
    assert isinstance(requeued_, AddUnschedulable)
    assert requeued_.why == WhyFailed(plugins=("LockedDoors",))
    assert isinstance(move, Move)
    assert columns(scheduler) == (0, 0)
    assert not len(scheduler.waiting)


def test_a_permitted_pod_that_pre_bind_refuses_backs_off() -> None:
    """As without a wait: no plugin's events are waited for."""
    scheduler, held = held_by_both(prebind="UNSCHEDULABLE")
    for plugin in ("Doors", "LockedDoors"):
        scheduler.waiting.allow(held.head.pop.uid, plugin)
    (refused,) = scheduler.resolve(2 * S)
    assert isinstance(refused.verdict, Unschedulable)
    assert [type(step) for step in refused.steps] == [Done, AddUnschedulable, Move]
    assert columns(scheduler) == (0, 0)


def test_a_pod_that_is_removed_while_it_waits_ends_its_pop() -> None:
    """What it held is free again."""
    scheduler, held = held_by_both()
    scheduler.remove_pod(held.head.pop.uid)
    (gone,) = scheduler.resolve(2 * S)
    assert isinstance(gone.verdict, Skipped)
    assert [type(step) for step in gone.steps] == [Done, Move]
    assert columns(scheduler) == (0, 0)


def test_owned_columns_follow_a_pod_through_its_binding_and_its_end() -> None:
    """A confirmation does not count twice."""
    scheduler = scheduler_with("Seats")
    pod = make_pod().obj()
    decision = decide(scheduler, pod)
    assert isinstance(decision.verdict, Binding)
    assert columns(scheduler) == (1, 1)
    scheduler.answer(decision.head.pop, None)
    scheduler.put_pod(replace(pod, node_name=decision.verdict.node_name))
    assert columns(scheduler) == (1, 1)
    scheduler.remove_pod(pod.uid)
    assert column(scheduler, "seats") == 0


@pytest.mark.parametrize("refused", [False, True])
def test_owned_columns_are_as_before_after_an_undo_and_a_refused_binding(refused: bool) -> None:
    """Beside a pod of the trace, which was never reserved."""
    scheduler = scheduler_with("Seats")
    scheduler.put_pod(make_pod("bound").node("a").obj())
    assert columns(scheduler) == (1, 0)
    decision = decide(scheduler, make_pod().obj())
    assert columns(scheduler) == (2, 1)
    if refused:
        scheduler.answer(decision.head.pop, Stage.BIND)
    else:
        scheduler.undo([decision])
    assert columns(scheduler) == (1, 0)


def test_nominations_stand_in_their_old_order_after_an_undo() -> None:
    """Nominated pods of lower priority lose their nomination in this order."""
    scheduler = scheduler_with()
    nominated = [
        replace(make_pod(name).req(cpu=cpu).obj(), nominated_node_name="a")
        for name, cpu in (("first", "1"), ("second", "9"), ("third", "1"))
    ]
    for pod in nominated:
        scheduler.put_pod(pod)
    heads = [
        Head(pop=PopId(pod.uid, cycle), attempts=1, first_enqueued_ns=0, queued_ns=0)
        for cycle, pod in enumerate(nominated[:2], 1)
    ]
    scheduler.undo([scheduler.decide(head, 0) for head in heads])
    assert scheduler.snapshot.nominations.on("a") == tuple(nominated)


def test_a_binding_that_fails_after_an_undo_is_of_the_last_cycle_that_the_queue_accepted() -> None:
    """A move since then counts for its pod; cycles that were taken back are no cycles."""
    scheduler = scheduler_with()
    bound, taken_back = (
        decide(scheduler, make_pod(name).obj(), cycle) for cycle, name in ((7, "p"), (8, "q"))
    )
    scheduler.undo([taken_back])
    steps = scheduler.answer(bound.head.pop, Stage.BIND)
    assert AddUnschedulable(bound.head.pop, 7) in steps


def test_a_column_counts_pods_once_for_all_profiles_and_those_that_were_there() -> None:
    """The first instance of a name is told."""
    snapshot = Snapshot()
    snapshot.set_node(make_node("a").obj())
    snapshot.set_pod(make_pod("early").node("a").obj())
    for _ in range(2):
        snapshot.follow(Seats.name, Seats())
    snapshot.set_pod(make_pod("late").node("a").obj())
    assert snapshot.columns.owned("seats").sum() == 2


def test_post_filter_plugins_run_in_order_and_their_messages_are_joined() -> None:
    """The first that makes room ends the point; phases are measured where they ran."""
    pod = make_pod().req(cpu="8").obj()
    decision = decide(scheduler_with("Sulk", "DefaultPreemption"), pod)
    assert isinstance(decision.verdict, Unschedulable)
    message = decision.verdict.preemption_message
    assert message.startswith("sulking on 2, preemption: 0/2 nodes are available")
    assert "PostFilter" in decision.phases_ns
    scheduler = scheduler_with("Sulk", "DefaultPreemption")
    for name in "ab":
        scheduler.put_pod(make_pod(f"low-{name}").req(cpu="4").node(name).obj())
    helped = decide(scheduler, make_pod().req(cpu="4").priority(1).obj())
    assert helped.nomination is not None


@pytest.mark.parametrize("names", [(), ("DefaultPreemption",)])
def test_without_preemption_no_post_filter_is_run_or_measured(names: Sequence[str]) -> None:
    """Neither where the profile has none nor where it is disabled."""
    scheduler = scheduler_with(*names, disable_preemption=True)
    decision = decide(scheduler, make_pod().req(cpu="8").obj())
    assert isinstance(decision.verdict, Unschedulable)
    assert "PostFilter" not in decision.phases_ns
    assert scheduler.evaluate(make_pod().req(cpu="8").obj(), 1, 0).preemption_disabled


def test_pre_filter_is_measured_where_it_refuses_each_pod_of_a_class() -> None:
    """Also where the refusal of an equivalent pod is repeated."""
    both = NodeSelectorTerm(
        match_fields=(
            requirement("metadata.name", "In", "a"),
            requirement("metadata.name", "In", "b"),
        )
    )
    scheduler = scheduler_with("NodeAffinity")
    pod = make_pod("p").required_terms(both).obj()
    decisions = [decide(scheduler, replace(pod, uid=f"u{n}"), cycle=n) for n in (1, 2)]
    assert decisions[1].verdict is decisions[0].verdict
    assert [list(decision.phases_ns) for decision in decisions] == [["PreFilter"], ["PreFilter"]]


def test_in_v1_16_all_feasible_nodes_are_equal_and_taken_in_turn() -> None:
    """No priorities are configured, so each node scores 1 and lastNodeIndex decides."""
    scheduler = Scheduler(SchedulerOptions(rules=RULES["v1.16"], queue=QUEUE_TRAITS["v1.16"]))
    for name, cpu in [("small", "4"), ("large", "64")]:
        scheduler.put_node(make_node(name).capacity(cpu=cpu, memory="64Gi").obj())
    taken = []
    for cycle in range(4):
        verdict = decide(scheduler, make_pod(f"p{cycle}").req(cpu="1").obj(), cycle).verdict
        assert isinstance(verdict, Binding)
        assert (verdict.total, verdict.tied) == (1, 2)
        taken.append(verdict.node_name)
    assert taken == ["small", "large", "small", "large"]
    evaluation = scheduler.evaluate(make_pod("q").req(cpu="1").obj(), 1, 0)
    assert evaluation.verdicts.totals == {"large": 0, "small": 0}
    assert evaluation.weights == {}
