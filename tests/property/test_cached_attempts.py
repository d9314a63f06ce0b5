"""Caches between attempts change no decision: a scheduler without caches decides alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from services.framework.preemption.batch_dry_run import BatchDryRun
from services.kube.node import LABEL_HOSTNAME, LABEL_ZONE, Node
from services.kube.pod import Pod
from services.kube.selector import (
    LabelSelector,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    UnsatisfiableAction,
)
from services.kube.workloads import Service
from services.scheduler.core.decisions import Binding, Decision, Stage
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.queueing.steps import Head, PopId
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler
from tests.builders import PodBuilder, make_budget, make_node, make_pod, requirement

STEPS = 60
NODES = [f"n{i}" for i in range(6)]
SHOWN = ("head", "verdict", "steps", "nominated_before", "choice_mark", "warnings")


class OneByOne(BatchDryRun):
    """Batch dry runs nothing, so that the preemptor tries one node after the other."""

    def run(self, *_: Any) -> None:
        """Leave it to the preemptor."""


class Forgetful(Scheduler):
    """Decides each pod as if it were the first that it saw."""

    def decide(self, head: Head, now_ns: int) -> Decision:
        """Drop the caches and decide."""
        for cycle in vars(self)["_cycles"].values():
            vars(cycle.framework.verdicts)["_classes"].clear()
        return super().decide(head, now_ns)


def forgetful(options: SchedulerOptions) -> Forgetful:
    """Return such a scheduler, which batch dry runs nothing either."""
    made = Forgetful(options)
    batch_dry_run = OneByOne(made.snapshot, options.rules.preemption)
    vars(made)["_attempts"].__dict__["_batch_dry_run"] = batch_dry_run
    return made


def spread(rng: Random) -> TopologySpreadConstraint:
    """Draw a constraint on the pods of one kind."""
    return TopologySpreadConstraint(
        max_skew=rng.randint(1, 2),
        topology_key=rng.choice([LABEL_HOSTNAME, LABEL_ZONE]),
        when_unsatisfiable=rng.choice(list(UnsatisfiableAction)),
        selector=selector(rng),
    )


def selector(rng: Random) -> LabelSelector:
    """Draw a kind of pods."""
    return LabelSelector(requirements=(requirement("app", "In", rng.choice("ab")),))


def terms(rng: Random) -> PodAffinity:
    """Draw a required term."""
    key = rng.choice([LABEL_HOSTNAME, LABEL_ZONE])
    return PodAffinity(required=(PodAffinityTerm(topology_key=key, selector=selector(rng)),))


def pod_of(rng: Random, name: str) -> PodBuilder:
    """Draw a pod; many are of one spec."""
    pod = make_pod(name).req(cpu=rng.randint(0, 4), memory=rng.choice([0, 1]))
    pod = pod.priority(rng.choice([0, 0, 1, 2, 3]))
    if rng.random() < 0.5:
        pod = pod.label("app", rng.choice("ab"))
    if rng.random() < 0.2:
        pod = pod.toleration("k", operator="Exists")
    if rng.random() < 0.2:
        pod = pod.preferred(rng.randint(1, 9)).node_affinity_in(LABEL_ZONE, rng.choice("xy"))
    if rng.random() < 0.1:
        pod = pod.host_port(80)
    if rng.random() < 0.1:
        pod = pod.never_preempts()
    if rng.random() < 0.1:
        field = requirement("metadata.name", "In", rng.choice(NODES))
        pod = pod.required_terms(NodeSelectorTerm(match_fields=(field,)))
    return pod


def constrained(rng: Random, pod: Pod) -> Pod:
    """Give a pod constraints that look at other pods, maybe."""
    changes: dict[str, Any] = {}
    if rng.random() < 0.5:
        changes["topology_spread_constraints"] = (spread(rng),)
    if rng.random() < 0.4:
        changes["pod_anti_affinity"] = terms(rng)
    if rng.random() < 0.2:
        changes["pod_affinity"] = terms(rng)
    return replace(pod, spec=replace(pod.spec, **changes))


class Play:
    """A random cluster with two schedulers that receive the same events and requests."""

    def __init__(self, rng: Random, options: SchedulerOptions, *, constraints: float) -> None:
        self.rng = rng
        self.kept, self.anew = Scheduler(options), forgetful(options)
        self.constraints = constraints
        self.pending: dict[str, Pod] = {}
        self.bound: dict[str, Pod] = {}
        self.attempts: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.specs: list[Pod] = []
        self.now_ns = 10
        self.cycle = 0
        for name in NODES[:4]:
            self.put_node(name)

    def tell(self, method: str, *args: Any) -> None:
        """Tell both, who must tell their queues the same."""
        assert getattr(self.kept, method)(*args) == getattr(self.anew, method)(*args)

    def put_node(self, name: str) -> None:
        """Add a node, or change it."""
        rng = self.rng
        node = make_node(name).label(LABEL_HOSTNAME, name).zone(rng.choice("xy"))
        node = node.capacity(
            cpu=rng.randint(3, 6), memory=rng.randint(2, 4), pods=rng.randint(3, 6)
        )
        if rng.random() < 0.2:
            node = node.taint("k", "v")
        for key in ("soft", "softer"):
            if rng.random() < 0.2:
                node = node.taint(key, "v", "PreferNoSchedule")
        self.tell("put_node", self.cordoned(node.obj()))

    def cordoned(self, node: Node) -> Node:
        """Return the node, now and then unschedulable."""
        return replace(node, unschedulable=self.rng.random() < 0.1)

    def put_bound(self, pod: Pod) -> None:
        """Tell of a pod on a node."""
        self.bound[pod.uid] = pod
        self.tell("put_pod", pod)

    def happen(self) -> None:
        """Let something happen to the cluster."""
        rng = self.rng
        kind = rng.randrange(13)
        if kind == 0:
            self.put_node(rng.choice(NODES))
        elif kind == 1 and rng.random() < 0.3:
            self.tell("remove_node", rng.choice(NODES))
        elif kind in {2, 3}:
            name = f"r{self.now_ns}"
            pod = pod_of(rng, name).node(rng.choice(NODES)).started(rng.choice([None, 1, 2, 3]))
            self.put_bound(constrained(rng, pod.obj()) if rng.random() < 0.2 else pod.obj())
        elif kind in {4, 5, 6} and self.bound:
            self.end(rng.choice(sorted(self.bound)))
        elif kind == 7 and self.bound:
            held = self.bound[rng.choice(sorted(self.bound))]
            self.put_bound(replace(held, start_time_ns=rng.randint(1, 9)))
        elif kind == 8 and self.bound:
            held = self.bound[rng.choice(sorted(self.bound))]
            self.put_bound(replace(held, labels={"app": rng.choice("ab")}))
        elif kind == 9:
            budget = make_budget(rng.choice("pq")).match_labels(app=rng.choice("ab"))
            self.tell("put_budget", budget.allowed(rng.randint(0, 2)).obj())
        elif kind == 10:
            self.tell("remove_budget", "default", rng.choice("pq"))
        elif kind == 11 and rng.random() < 0.3:
            service = Service(name="s", namespace="default", selector={"app": rng.choice("ab")})
            self.tell("put_object", service)
        elif kind == 12 and self.pending:
            waiting = self.pending[rng.choice(sorted(self.pending))]
            self.put_pending(replace(waiting, nominated_node_name=rng.choice(["", *NODES])))

    def put_pending(self, pod: Pod) -> None:
        """Tell of a pod that waits."""
        self.pending[pod.uid] = pod
        self.tell("put_pod", pod)

    def end(self, uid: str) -> None:
        """Let a pod end, or begin to."""
        pod = self.bound[uid]
        if self.rng.random() < 0.3:
            self.put_bound(replace(pod, deletion_ns=self.now_ns))
            return
        del self.bound[uid]
        self.tell("remove_pod", uid)

    def come(self) -> None:
        """Create a pending pod, often with the spec of an earlier one."""
        rng = self.rng
        pod = pod_of(rng, f"p{self.now_ns}").obj()
        if rng.random() < self.constraints:
            pod = constrained(rng, pod)
        if self.specs and rng.random() < 0.6:
            like = rng.choice(self.specs)
            pod = replace(pod, spec=like.spec, labels=like.labels)
        self.specs.append(pod)
        self.put_pending(pod)

    def decide(self, uid: str) -> tuple[Decision, Decision]:
        """Have both decide, alike."""
        self.cycle += 1
        self.attempts[uid] += 1
        pop = PopId(uid, self.cycle)
        head = Head(pop=pop, attempts=self.attempts[uid], first_enqueued_ns=0, queued_ns=0)
        kept, anew = self.kept.decide(head, self.now_ns), self.anew.decide(head, self.now_ns)
        for name in SHOWN:
            assert getattr(kept, name) == getattr(anew, name), name
        verdict = kept.verdict
        nominates = " with victims" if kept.nomination is not None else ""
        self.seen[type(verdict).__name__ + nominates] += 1
        return kept, anew

    def carry_out(self, kept: Decision, anew: Decision) -> None:
        """Apply the decision, undo it, or refuse it."""
        rng, pop, pod = self.rng, kept.head.pop, kept.attempted_pod
        if rng.random() < 0.1:
            self.kept.undo([kept])
            self.anew.undo([anew])
            return
        verdict, nomination = kept.verdict, kept.nomination
        if isinstance(verdict, Binding):
            refused = rng.random() < 0.1
            self.tell("answer", pop, Stage.BIND if refused else None)
            if not refused:
                del self.pending[pod.uid]
                started = rng.choice([None, self.now_ns])
                self.put_bound(replace(pod, node_name=verdict.node_name, start_time_ns=started))
            return
        self.tell("answer", pop, None)
        if nomination is None:
            return
        if rng.random() < 0.7:
            self.put_pending(replace(pod, nominated_node_name=nomination.node))
        for victim in nomination.deletions:
            if rng.random() < 0.8 and victim.uid in self.bound:
                self.end(victim.uid)

    def go(self) -> None:
        """Create pods, apply events, and try the waiting pods after each."""
        for _ in range(STEPS):
            self.now_ns += 1
            if self.rng.random() < 0.4:
                self.come()
            else:
                self.happen()
            waiting = sorted(self.pending)
            for uid in self.rng.sample(waiting, min(len(waiting), self.rng.randint(0, 5))):
                self.carry_out(*self.decide(uid))


@given(
    rng=st.randoms(use_true_random=True),
    rules=st.sampled_from(["v1.34", "v1.34", "v1.16"]),
    sampling=st.sampled_from([None, None, 0]),
    constraints=st.sampled_from([0.0, 0.5]),
)
@settings(max_examples=60)
def test_what_is_kept_changes_no_decision(
    rng: Random, rules: str, sampling: int | None, constraints: float
) -> None:
    """Verdicts, texts, reasons, victims, nominations and the steps of the queue are the same."""
    mode = rules if rules == "v1.16" else "v1.34"
    options = SchedulerOptions(rules=RULES[rules], queue=QUEUE_TRAITS[mode], sampling=sampling)
    play = Play(rng, options, constraints=constraints)
    play.go()
    for what, count in play.seen.items():
        event(f"{what}: {'many' if count > 9 else 'some'}")
