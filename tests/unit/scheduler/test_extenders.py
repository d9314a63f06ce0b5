"""What extenders over HTTP do to decisions, and what their failures do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from services.framework.plugins.in_tree import DEFAULT_PROFILE
from services.framework.preemption.candidates import DecidedBy
from services.framework.profile import ALL, ExtensionPoint, PluginSet
from services.framework.runtime.diagnosis import Unschedulable
from services.kube.pod import Pod
from services.scheduler.config.extenders import ExtenderConfig, ManagedResource
from services.scheduler.core.decisions import Binding, Decision, Failed, MayWait
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.queueing.steps import CommitUnschedulable, Head, PopId
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler
from services.scheduler.extenders.allowed import ANY, AllowedExtenders
from services.scheduler.extenders.connect import connect_extenders, without_ignored
from services.scheduler.extenders.grpc_extender import ExtenderObjects
from tests.builders import make_node, make_pod
from tests.extenders import Json, Raw, ThenClosed, Verb, Webhook, webhook

NODES = ("a", "b", "c")
FILTER = ExtenderConfig(filter_verb="filter", node_cache_capable=True)
GPU = "example.com/gpu"


class Case:
    """A scheduler with one extender and three equal nodes."""

    def __init__(self, served: Webhook, scheduler: Scheduler) -> None:
        self.served = served
        self.scheduler = scheduler

    def decide(self, pod: Pod) -> Decision:
        """Decide about a pod that has come."""
        self.scheduler.put_pod(pod)
        head = Head(pop=PopId(pod.uid, 1), attempts=1, first_enqueued_ns=0, queued_ns=0)
        return self.scheduler.decide(head, 0)


@contextmanager
def served(config: ExtenderConfig, *, plain: bool = True, **verbs: Verb) -> Iterator[Case]:
    """Begin a case; no plugin scores where it is `plain`."""
    with webhook(**verbs) as hook:
        configs = [replace(config, url_prefix=hook.url)]
        profile = replace(DEFAULT_PROFILE, at={ExtensionPoint.SCORE: PluginSet(disabled=(ALL,))})
        (extender,) = connect_extenders(
            configs, AllowedExtenders(ANY), ExtenderObjects(), "extenders"
        )
        options = SchedulerOptions(
            rules=RULES["v1.34"],
            queue=QUEUE_TRAITS["v1.34"],
            profiles=without_ignored([profile if plain else DEFAULT_PROFILE], configs),
            extenders=(extender,),
        )
        scheduler = Scheduler(options, stopwatch=partial(next, count(0, 10)))
        for name in NODES:
            scheduler.put_node(make_node(name).capacity(cpu="4", memory="8Gi").obj())
        with closing(extender):
            yield Case(hook, scheduler)


def pod(name: str = "p", cpu: str = "1", priority: int = 0) -> Pod:
    """Return a pod."""
    return make_pod(name).req(cpu=cpu).priority(priority).obj()


def bound(decision: Decision) -> Binding:
    """Return the binding that was decided."""
    assert isinstance(decision.verdict, Binding), decision.verdict
    return decision.verdict


def refused(decision: Decision) -> Unschedulable:
    """Return the refusal that was decided."""
    assert isinstance(decision.verdict, Unschedulable), decision.verdict
    return decision.verdict


def failed(decision: Decision) -> str:
    """Return the message of the failure that was decided."""
    assert isinstance(decision.verdict, Failed), decision.verdict
    return decision.verdict.message


def only(*names: str, **more: Json) -> Verb:
    """Return a filter by names."""
    return lambda _args: {"NodeNames": list(names), **more}


def test_a_filter_is_sent_the_nodes_that_fit_and_keeps_some() -> None:
    """By their names, where the extender knows the nodes itself."""
    with served(FILTER, filter=only("b")) as case:
        binding = bound(case.decide(pod()))
        (args,) = case.served.asked("filter")
    assert (binding.node_name, binding.feasible, binding.evaluated) == ("b", 1, 1)
    assert args["NodeNames"] == ["a", "b", "c"]
    assert args["Nodes"] is None
    assert args["Pod"]["metadata"]["name"] == "p"


def test_whole_nodes_are_sent_and_answered_as_kubernetes_writes_them() -> None:
    """Field names in any case, as Go's decoder takes them."""

    def keep_last(args: Json) -> Json:
        return {"nodes": {"items": args["Nodes"]["items"][-1:]}}

    with served(replace(FILTER, node_cache_capable=False), filter=keep_last) as case:
        assert bound(case.decide(pod())).node_name == "c"
        (args,) = case.served.asked("filter")
    assert args["NodeNames"] is None
    first = args["Nodes"]["items"][0]
    assert (first["metadata"]["name"], first["status"]["allocatable"]["cpu"]) == ("a", "4")


def test_reasons_are_counted_in_the_fit_error_by_their_strength() -> None:
    """An unresolvable refusal wins; a node dropped without a message has no reason."""
    verb = only(FailedNodes={"a": "busy", "b": "busy"}, FailedAndUnresolvableNodes={"b": "broken"})
    with served(FILTER, filter=verb) as case:
        decision = case.decide(pod())
    verdict = refused(decision)
    assert verdict.message == (
        "0/3 nodes are available: 1 broken, 1 busy. "
        "no new claims to deallocate, "
        "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )
    assert verdict.plugins == ("Extender",)
    requeue = next(step for step in decision.steps if isinstance(step, CommitUnschedulable))
    assert not requeue.why.is_error


def test_an_extender_may_name_unknown_nodes() -> None:
    """Their reasons are counted, as upstream counts them."""
    with served(FILTER, filter=only(FailedNodes={"a": "x", "ghost": "x"})) as case:
        assert refused(case.decide(pod())).reasons == (("x", 2),)


def test_filters_reasons_stay_beside_an_extenders() -> None:
    """The extender receives only the others."""
    with served(FILTER, filter=only(FailedNodes={"a": "no", "c": "no"})) as case:
        full = make_pod("full").req(cpu="4").obj()
        case.scheduler.put_pod(replace(full, node_name="b"))
        verdict = refused(case.decide(pod()))
        assert case.served.asked("filter")[0]["NodeNames"] == ["a", "c"]
    assert dict(verdict.reasons) == {"no": 2, "Insufficient cpu": 1}
    assert verdict.plugins == ("Extender", "NodeResourcesFit")


def test_scores_are_scaled_weighted_and_added() -> None:
    """10 times weight each; a node of none gets nothing, a node that is none does no harm."""

    def score(_args: Json) -> Json:
        hosts = {"a": 1, "b": 7, "ghost": 9}
        return [{"Host": host, "Score": score} for host, score in hosts.items()]

    config = ExtenderConfig(prioritize_verb="prioritize", weight=3, node_cache_capable=True)
    with served(config, prioritize=score) as case:
        binding = bound(case.decide(pod()))
    assert (binding.node_name, binding.total, binding.tied) == ("b", 7 * 3 * 10, 1)


def test_scores_add_to_those_of_plugins() -> None:
    """The emptiest node loses to the extender's favourite."""
    config = ExtenderConfig(prioritize_verb="prioritize", weight=100, node_cache_capable=True)
    with served(config, plain=False, prioritize=lambda _: [{"Host": "b", "Score": 10}]) as case:
        case.scheduler.put_pod(replace(make_pod("held").req(cpu="2").obj(), node_name="b"))
        binding = bound(case.decide(pod()))
    assert binding.node_name == "b"
    assert binding.total is not None
    assert 10_000 < binding.total < 11_000


def test_a_single_node_is_not_scored() -> None:
    """No extender is called then."""
    config = replace(FILTER, prioritize_verb="prioritize", weight=1)
    with served(config, filter=only("a"), prioritize=lambda _: []) as case:
        assert bound(case.decide(pod())).total is None
        assert not case.served.asked("prioritize")


def test_failed_scores_are_passed_over_with_a_warning() -> None:
    """The pod is bound all the same."""
    config = ExtenderConfig(prioritize_verb="prioritize", weight=1, node_cache_capable=True)
    with served(config, prioritize=lambda _: Raw(b"{nonsense")) as case:
        decision = case.decide(pod())
    assert bound(decision).total == 0
    (warning,) = decision.warnings
    assert "prioritize: the answer is no JSON" in warning


def boom(_args: Json) -> Json:
    """Fail."""
    raise RuntimeError("boom")


def hang(_args: Json) -> Json:
    """Take longer than anybody waits."""
    time.sleep(120)
    return {}


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        (boom, "status 500"),
        (lambda _: Raw(b"<html>"), "the answer is no JSON"),
        (lambda _: ["a"], "the answer is not an object"),
        (lambda _: {"NodeNames": "a"}, "NodeNames is not a list"),
        (lambda _: {"NodeNames": [1]}, "NodeNames is not a text"),
        (lambda _: {"FailedNodes": {"a": 1}}, "FailedNodes[a] is not a text"),
        (lambda _: {"Error": "no licence"}, "no licence"),
        (only("a", "ghost"), "claims a filtered node 'ghost' which is not found"),
        (hang, "no answer within 0.1 s"),
    ],
)
def test_a_failing_filter_fails_the_cycle_or_is_passed_over(verb: Verb, said: str) -> None:
    """By whether it is ignorable; either way it is reported."""
    config = replace(FILTER, timeout_ns=10**8) if verb is hang else FILTER
    with served(config, filter=verb) as case:
        began = time.monotonic()
        assert said in failed(case.decide(pod()))
        assert time.monotonic() - began < 60
    with served(replace(config, ignorable=True), filter=verb) as case:
        decision = case.decide(pod())
    assert bound(decision).feasible == 3
    assert said in decision.warnings[0]


def test_a_service_that_is_not_there_fails_the_cycle() -> None:
    """At once."""
    with served(FILTER, filter=only()) as case:
        pass
    assert "cannot be reached: Connection refused" in failed(case.decide(pod()))


def test_a_kept_connection_that_was_closed_is_opened_again() -> None:
    """A pause between two pods is no failure."""
    answer = only("a")
    closing = lambda args: ThenClosed(json.dumps(answer(args)).encode())  # noqa: E731
    with served(FILTER, filter=closing) as case:
        assert bound(case.decide(pod("one"))).node_name == "a"
        assert bound(case.decide(pod("two"))).node_name == "a"


def test_only_pods_that_want_its_resources_are_an_extenders_business() -> None:
    """And it may look after those resources alone."""
    config = replace(FILTER, managed_resources=(ManagedResource(name=GPU, ignored=True),))
    with served(config, filter=only("c")) as case:
        assert bound(case.decide(pod("plain"))).feasible == 3
        wants = make_pod("gpu").container(limits={GPU: 1}, requests={GPU: 1}).obj()
        assert bound(case.decide(wants)).node_name == "c"
        assert len(case.served.asked("filter")) == 1


def test_an_extender_binds_in_the_place_of_the_plugin() -> None:
    """It receives pod and node."""
    with served(ExtenderConfig(bind_verb="bind"), bind=lambda _: {}) as case:
        binding = bound(case.decide(pod()))
        (args,) = case.served.asked("bind")
    assert args == {
        "PodName": "p",
        "PodNamespace": "default",
        "PodUID": "uid-default-p",
        "Node": binding.node_name,
    }


def test_a_binding_that_fails_gives_the_pod_back() -> None:
    """As an error, with the extender's words."""
    with served(ExtenderConfig(bind_verb="bind"), bind=lambda _: {"Error": "taken"}) as case:
        decision = case.decide(pod())
        assert failed(decision).endswith("bind: taken")
        assert not case.scheduler.assumed()
    config = ExtenderConfig(bind_verb="bind", ignorable=True)
    with served(config, bind=lambda _: {"Error": "taken"}) as case:
        decision = case.decide(pod())
        assert bound(decision)
        assert decision.warnings


def fill(case: Case) -> None:
    """Put a pod of low priority on each node."""
    for name in NODES:
        low = make_pod(f"low-{name}").req(cpu="4").obj()
        case.scheduler.put_pod(replace(low, node_name=name, start_time_ns=1))


def victims(args: Json, *nodes: str) -> Json:
    """Return the victims of some nodes as they were asked."""
    given = args["NodeNameToMetaVictims"]
    return {"NodeNameToMetaVictims": {name: given[name] for name in nodes}}


PREEMPT = ExtenderConfig(preempt_verb="preempt", node_cache_capable=True)


def test_an_extender_narrows_a_preemption() -> None:
    """It receives all candidates, by the victims' UIDs."""
    with served(PREEMPT, preempt=lambda args: victims(args, "b")) as case:
        fill(case)
        verdict = refused(case.decide(pod(priority=5)))
        (args,) = case.served.asked("preempt")
    assert verdict.nomination is not None
    assert verdict.nomination.node == "b"
    assert [victim.name for victim in verdict.nomination.victims] == ["low-b"]
    assert args["NodeNameToVictims"] is None
    assert args["NodeNameToMetaVictims"]["a"] == {
        "Pods": [{"UID": "uid-default-low-a"}],
        "NumPDBViolations": 0,
    }


def test_violations_are_those_that_an_extender_states() -> None:
    """The first criterion goes by its word."""

    def state(args: Json) -> Json:
        asked = args["NodeNameToVictims"]
        return {
            "NodeNameToMetaVictims": {
                name: {
                    "Pods": [{"UID": pod["metadata"]["uid"]} for pod in item["Pods"]],
                    "NumPDBViolations": 0 if name == "c" else 1,
                }
                for name, item in asked.items()
            }
        }

    with served(replace(PREEMPT, node_cache_capable=False), preempt=state) as case:
        fill(case)
        nomination = refused(case.decide(pod(priority=5))).nomination
    assert nomination is not None
    assert (nomination.node, nomination.decided_by) == ("c", DecidedBy.BUDGET_VIOLATIONS)


def lie(**node: Any) -> Verb:
    """Return a preemption that leaves one node, as given."""
    return lambda _args: {"NodeNameToMetaVictims": node}


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        (lie(a={"Pods": [{"UID": "nobody"}]}), "pod (UID: nobody) on node: a, but the pod is not"),
        (lie(ghost={"Pods": [{"UID": "x"}]}), 'on node "ghost", which is not known'),
        (lie(a={"Pods": []}), 'expected at least one victim pod on node "a"'),
        (lie(a={"Pods": [{"UID": 3}]}), "UID is not a text"),
        (boom, "status 500"),
    ],
)
def test_a_lying_preemption_makes_no_room(verb: Verb, said: str) -> None:
    """The pod waits, with the reason."""
    with served(PREEMPT, preempt=verb) as case:
        fill(case)
        verdict = refused(case.decide(pod(priority=5)))
    assert verdict.nomination is None
    assert said in verdict.preemption_message


def test_a_preemption_whose_candidates_extenders_remove_does_not_help() -> None:
    """In upstream's words."""
    with served(PREEMPT, preempt=lie()) as case:
        fill(case)
        verdict = refused(case.decide(pod(priority=5)))
    assert verdict.preemption_message.endswith("preemption: no candidate node for preemption")


def test_extenders_filter_the_nominated_node_first() -> None:
    """Alone; and then all of them, where the extender does not want it."""
    with served(FILTER, filter=only("b")) as case:
        nominated = replace(pod(), nominated_node_name="a")
        assert bound(case.decide(replace(nominated, uid="other"))).node_name == "b"
    asked: list[list[str]] = [args["NodeNames"] for args in case.served.asked("filter")]
    assert asked == [["a"], ["a", "b", "c"]]


def test_phases_before_a_refused_nominated_node_count_with_those_after_it() -> None:
    """The time of an attempt is that of all its phases, of which the latest is the last."""
    with served(FILTER, filter=only("b")) as case:
        nominated = replace(pod(), uid="other", nominated_node_name="a")
        phases_ns = case.decide(nominated).phases_ns
        assert phases_ns == {"PreFilter": 10, "Filter": 20, "Extenders": 20}
        assert list(phases_ns) == ["PreFilter", "Filter", "Extenders"]


def test_no_event_waits_to_be_sent_while_a_pod_waits_for_an_extender() -> None:
    """Any event may move it, as far as anybody knows."""
    with served(FILTER, filter=only()) as case:
        refused(case.decide(pod()))
        assert case.scheduler.may_wait() is MayWait.NOTHING


def test_an_evaluation_shows_the_extenders_verdicts() -> None:
    """Their refusals by node, and their scores in the totals."""
    config = replace(FILTER, prioritize_verb="prioritize", weight=2)
    verb = only("a", "c", FailedNodes={"b": "no"})
    with served(config, filter=verb, prioritize=lambda _: [{"Host": "c", "Score": 4}]) as case:
        evaluation = case.scheduler.evaluate(pod(), 1, 0)
    assert evaluation.host == "c"
    assert evaluation.verdicts.feasible == ("a", "c")
    assert evaluation.verdicts.refusals["b"].reasons == ("no",)
    assert evaluation.verdicts.totals == {"a": 0, "c": 80}
    assert evaluation.verdicts.best == ("c",)
    with served(FILTER, filter=boom) as case:
        assert "status 500" in case.scheduler.evaluate(pod(), 1, 0).error


def test_an_evaluation_calls_extenders_as_an_attempt_does() -> None:
    """Once, and for a nominated node that passes, the others as well."""

    def not_b(args: Json) -> Json:
        return {"NodeNames": [name for name in args["NodeNames"] if name != "b"]}

    config = replace(FILTER, prioritize_verb="prioritize")
    with served(config, filter=not_b, prioritize=lambda _: []) as case:
        case.scheduler.evaluate(pod(), 1, 0)
        counts = [len(case.served.asked(verb)) for verb in ("filter", "prioritize")]
        evaluation = case.scheduler.evaluate(replace(pod(), nominated_node_name="a"), 1, 0)
    assert counts == [1, 1]
    assert (evaluation.host, evaluation.fast_path) == ("a", "nominatedNode")
    assert evaluation.verdicts.feasible == ("a", "c")


def test_an_answer_without_measure_is_cut() -> None:
    """Its text goes into messages, which have a limit."""
    ghosts = {f"ghost-{i:04}": f"reason {i}" for i in range(500)}
    with served(FILTER, filter=only(FailedNodes=ghosts | {"a": "x" * 10**6})) as case:
        decision = case.decide(pod())
    reasons = dict(refused(decision).reasons)
    assert len(reasons) == 101
    assert max(map(len, reasons)) == 512
    assert "gives reasons for 500 nodes that are not known" in decision.warnings[0]
    with served(FILTER, filter=lambda _: {"Error": "y" * 10**6}) as case:
        assert len(failed(case.decide(pod()))) == 512
