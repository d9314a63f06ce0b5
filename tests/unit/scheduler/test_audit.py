"""What the audit finds wrong in another scheduler's decisions, and in which state."""

from __future__ import annotations

from collections.abc import Sequence

from reprieve.kube.v1beta1 import object_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.pod import PodPhase
from services.scheduler.audit import PlacementAudit, Violation
from tests import builders
from tests.unit.world.builders import bind, unschedulable, wrap

NAMES = ("default-scheduler",)


def pod(name: str, cpu: str = "1") -> builders.PodBuilder:
    """Return a pod that requests so much CPU; its UID is "uid-NAME"."""
    return builders.make_pod(name).uid(f"uid-{name}").req(cpu=cpu)


def running(name: str, cpu: str, priority: int = 0) -> builders.PodBuilder:
    """Return a pod that runs on node "n"."""
    return pod(name, cpu).priority(priority).node("n").phase(PodPhase.RUNNING)


def added(message: object) -> scheduler_pb2.Event:
    """Return the event that adds an object."""
    wrapped = wrap(message) if not isinstance(message, object_pb2.KubernetesObject) else message
    return scheduler_pb2.Event(add=wrapped)


class Session:
    """A scheduler's session under audit: node "n" has 4 CPUs."""

    def __init__(self, *objects: object, names: Sequence[str] = NAMES) -> None:
        self.audit = PlacementAudit(scheduler_pb2.SchedulerConfig(), names)
        node = builders.make_node("n").capacity(cpu="4")
        self.round([added(node.message()), *map(added, objects)])

    def round(
        self,
        events: Sequence[scheduler_pb2.Event] = (),
        *outcomes: scheduler_pb2.Outcome,
        refused: Sequence[str] = (),
    ) -> dict[str, list[str]]:
        """Send a round whose answers refuse the bindings of `refused`; return causes by pod."""
        answers = []
        for uid in refused:
            answer = scheduler_pb2.Answer(refused=scheduler_pb2.REFUSAL_STAGE_BIND)
            answer.pop.uid, answer.pop.cycle = uid, 1
            answers.append(answer)
        round_ = scheduler_pb2.Round(events=events, answers=answers)
        by_decision = self.audit.judge(round_, scheduler_pb2.RoundOutcomes(outcomes=outcomes))
        assert not self.audit.stopped
        return {
            uid: [violation.cause for violation in violations]
            for (uid, _), violations in by_decision.items()
        }


def test_a_binding_counts_for_the_next_pod_of_the_same_round() -> None:
    """Two pods of 3 CPUs do not fit a node of 4."""
    session = Session(pod("a", "3").message(), pod("b", "3").message())
    outcomes = session.round((), bind("uid-a", "n"), bind("uid-b", "n"))
    assert outcomes == {"uid-b": ["NodeResourcesFit"]}


def test_an_invalid_binding_takes_its_room_too() -> None:
    """It was carried out: what comes after it finds less."""
    session = Session(*(pod(name, cpu).message() for name, cpu in (("a", "9"), ("b", "1"))))
    outcomes = session.round((), bind("uid-a", "n"), bind("uid-b", "n"))
    assert outcomes == {"uid-a": ["NodeResourcesFit"], "uid-b": ["NodeResourcesFit"]}


def test_a_refused_binding_frees_its_room() -> None:
    """With the answer, which comes before the next round's pods are tried."""
    session = Session(pod("a", "3").message(), pod("b", "3").message())
    assert session.round((), bind("uid-a", "n")) == {}
    assert session.round((), bind("uid-b", "n"), refused=["uid-a"]) == {}


def test_an_event_of_the_round_counts_before_its_outcomes() -> None:
    """A node that is cordoned in this round takes no pod of it."""
    session = Session(pod("a").message())
    cordoned = builders.make_node("n").capacity(cpu="4").unschedulable().message()
    events = [scheduler_pb2.Event(update=wrap(cordoned))]
    assert session.round(events, bind("uid-a", "n")) == {"uid-a": ["NodeUnschedulable"]}


def test_room_of_nominated_pods_is_kept_from_lower_priorities() -> None:
    """By the nomination of the round itself, too."""
    high, low = pod("high", "4").priority(10), pod("low", "1")
    session = Session(high.message(), low.message(), running("victim", "4").message())
    nominates = unschedulable("uid-high", node="n", victims=["uid-victim"])
    assert session.round((), nominates) == {}
    gone = scheduler_pb2.Event()
    gone.remove.kind, gone.remove.uid = "Pod", "uid-victim"
    gone.remove.namespace, gone.remove.name = "default", "victim"
    assert session.round([gone], bind("uid-low", "n")) == {"uid-low": ["NodeResourcesFit"]}


def test_a_nominated_pod_takes_its_own_node() -> None:
    """Its own nomination is not in its way."""
    session = Session(pod("high", "4").priority(10).nominated("n").message())
    assert session.round((), bind("uid-high", "n")) == {}


def test_victims_of_the_same_priority_and_too_few_victims_are_faults() -> None:
    """And so is a preemption for a pod that never preempts."""
    on_node = (running("equal", "2", 5).message(), running("lower", "2", 1).message())
    session = Session(pod("a", "4").priority(5).message(), *on_node)
    few = session.round((), unschedulable("uid-a", node="n", victims=["uid-lower"]))
    assert few == {"uid-a": ["NodeResourcesFit"]}
    both = ["uid-lower", "uid-equal"]
    assert session.round((), unschedulable("uid-a", node="n", victims=both)) == {
        "uid-a": ["DefaultPreemption"]
    }
    session = Session(pod("never").priority(5).never_preempts().message(), *on_node)
    never = unschedulable("uid-never", node="n", victims=["uid-lower"])
    assert session.round((), never) == {"uid-never": ["DefaultPreemption"]}


def test_pods_that_terminate_anyway_may_be_counted_on() -> None:
    """A scheduler that knows them does not delete them again."""
    leaving = running("leaving", "3").terminating().message()
    session = Session(pod("a", "4").priority(5).message(), leaving, running("lower", "1").message())
    assert session.round((), unschedulable("uid-a", node="n", victims=["uid-lower"])) == {}


def test_the_names_of_the_session_decide_whose_a_pod_is() -> None:
    """A scheduler may take pods of a name that no profile of the configuration has."""
    own, other = pod("own").scheduler("theirs"), pod("other").scheduler("default-scheduler")
    session = Session(own.message(), other.message(), names=("theirs",))
    outcomes = session.round((), bind("uid-own", "n"), bind("uid-other", "n"))
    assert outcomes == {"uid-other": ["schedulerName"]}


def test_a_resumed_audit_has_the_state_of_the_rounds_before() -> None:
    """Also of a binding that was not confirmed to the scheduler yet."""
    events = [
        added(builders.make_node("n").capacity(cpu="4").message()),
        added(pod("a", "3").message()),
        added(pod("b", "3").message()),
    ]
    audit = PlacementAudit(scheduler_pb2.SchedulerConfig(), NAMES)
    audit.catch_up([scheduler_pb2.Round(events=events)], {"uid-a": "n"})
    outcomes = scheduler_pb2.RoundOutcomes(outcomes=[bind("uid-b", "n")])
    found = audit.judge(scheduler_pb2.Round(), outcomes)
    assert found == {("uid-b", 1): (Violation("NodeResourcesFit", "Insufficient cpu"),)}


def test_an_object_that_cannot_be_read_ends_the_audit_and_not_the_run() -> None:
    """The reason stays, for the summary."""
    audit = PlacementAudit(scheduler_pb2.SchedulerConfig(), NAMES)
    wrong = added(pod("a", "none").message())
    assert audit.judge(scheduler_pb2.Round(events=[wrong]), scheduler_pb2.RoundOutcomes()) == {}
    assert "none" in audit.stopped
    assert audit.judge(scheduler_pb2.Round(), scheduler_pb2.RoundOutcomes()) == {}
