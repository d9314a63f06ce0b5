"""Pod affinity and topology spread, followed through changes, equal a count from scratch."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from services.framework.runtime.framework import Framework
from services.framework.snapshot.snapshot import Snapshot
from services.kube.node import LABEL_HOSTNAME, LABEL_ZONE, Node
from services.kube.pod import Pod, PodSpec
from services.kube.selector import (
    LabelSelector,
    NodeInclusionPolicy,
    Operator,
    PodAffinity,
    PodAffinityTerm,
    Requirement,
    TopologySpreadConstraint,
    UnsatisfiableAction,
    WeightedPodAffinityTerm,
)
from services.kube.workloads import Namespace
from services.scheduler.core.cycle.evaluate import NodeVerdicts
from tests.builders import make_node, make_pod
from tests.cycles import dry_run_on, evaluate
from tests.property import constraint_model as model
from tests.property.constraint_model import Cluster

NODES = [f"n{i}" for i in range(4)]
KEYS = [LABEL_ZONE, LABEL_HOSTNAME, "rack"]
names = st.sampled_from(NODES)
numbers = st.integers(0, 9)


def need(key: str, operator: str, *values: str) -> LabelSelector:
    """Return a selector with one requirement."""
    wanted = Requirement(key=key, operator=Operator(operator), values=values)
    return LabelSelector(requirements=(wanted,))


often = need("app", "In", "x")
selectors = st.sampled_from(
    [
        often,
        often,
        often,
        need("app", "In", "x", "y"),
        need("tier", "Exists"),
        need("tier", "DoesNotExist"),
        need("app", "NotIn", "y"),
        LabelSelector(),
        None,
    ]
)
labels = st.sampled_from([{"app": "x"}, {"app": "x"}, {"app": "x", "tier": "y"}, {"app": "y"}, {}])
terms = st.builds(
    PodAffinityTerm,
    topology_key=st.sampled_from(KEYS),
    selector=selectors,
    namespaces=st.sampled_from([(), (), ("a",), ("a", "b")]),
    namespace_selector=st.sampled_from(
        [None, None, often, LabelSelector(), need("app", "NotIn", "y")]
    ),
)
affinities = st.none() | st.builds(
    PodAffinity,
    required=st.lists(terms, max_size=2).map(tuple),
    preferred=st.lists(
        st.builds(WeightedPodAffinityTerm, weight=st.integers(1, 100), term=terms), max_size=2
    ).map(tuple),
)
policies = st.sampled_from(NodeInclusionPolicy)
constraints = st.builds(
    TopologySpreadConstraint,
    max_skew=st.integers(1, 2),
    topology_key=st.sampled_from(KEYS),
    when_unsatisfiable=st.sampled_from(UnsatisfiableAction),
    selector=selectors,
    min_domains=st.integers(1, 3),
    node_affinity_policy=policies,
    node_taints_policy=policies,
    match_label_keys=st.sampled_from([(), ("app",), ("tier", "absent")]),
)
specs = st.builds(
    PodSpec,
    pod_affinity=affinities,
    pod_anti_affinity=affinities,
    topology_spread_constraints=st.lists(constraints, max_size=2).map(tuple),
    node_selector=st.sampled_from([{}, {}, {"disk": "ssd"}]),
)
specs |= st.builds(
    PodSpec,
    topology_spread_constraints=st.tuples(
        st.builds(
            TopologySpreadConstraint,
            max_skew=st.just(1),
            topology_key=st.sampled_from([LABEL_ZONE, LABEL_HOSTNAME]),
            when_unsatisfiable=st.just(UnsatisfiableAction.DO_NOT_SCHEDULE),
            selector=st.just(often),
        )
    ),
)
spaces = st.sampled_from("aaaab")


class Constraints(RuleBasedStateMachine):
    """Changes a cluster at random and asks about pods."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshot = Snapshot()
        self.framework = Framework(self.snapshot)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.asked: list[Pod] = []

    @initialize(
        pods=st.lists(st.tuples(specs, spaces, labels, names), min_size=4, max_size=10),
        spec=specs,
        labels=labels,
    )
    def begin(
        self,
        pods: list[tuple[PodSpec, str, dict[str, str], str]],
        spec: PodSpec,
        labels: dict[str, str],
    ) -> None:
        """Begin with all nodes, in two zones, and some pods."""
        for number, name in enumerate(NODES):
            self.set_node(name, 1 + number // 2, "r" if number else "", tainted=False)
        for number, (shape, space, its_labels, node) in enumerate(pods):
            self.set_pod(number, shape, space, its_labels, node, going=False)
        self.ask_about(spec, "a", labels)

    @rule(
        name=names,
        zone=st.sampled_from([0, 1, 1, 2, 2, 3]),
        rack=st.sampled_from(["r", "s", ""]),
        tainted=st.sampled_from([False, False, False, True]),
    )
    def set_node(self, name: str, zone: int, rack: str, *, tainted: bool) -> None:
        """Add a node or change it; some lack labels."""
        builder = make_node(name).capacity(cpu="64", memory="64Gi")
        builder.label(LABEL_HOSTNAME, name)
        if zone:
            builder.zone(f"z{zone}")
        if rack:
            builder.label("rack", rack)
        if zone % 2:
            builder.label("disk", "ssd")
        if tainted:
            builder.taint("dedicated")
        self.nodes[name] = builder.obj()
        self.snapshot.set_node(self.nodes[name])

    @rule(name=names)
    def remove_node(self, name: str) -> None:
        """Remove a node, if it is there; its pods stay."""
        self.nodes.pop(name, None)
        self.snapshot.remove_node(name)

    @rule(
        number=numbers,
        spec=specs,
        space=spaces,
        labels=labels,
        node=names,
        going=st.sampled_from([False, False, True]),
    )
    def set_pod(
        self, number: int, spec: PodSpec, space: str, labels: dict[str, str], node: str, going: bool
    ) -> None:
        """Add an assigned pod, or move or change it."""
        pod = replace(
            make_pod(f"p{number}", space).node(node).obj(),
            uid=f"u{number}",
            spec=spec,
            labels=labels,
            deletion_ns=1 if going else None,
        )
        self.pods[pod.uid] = pod
        self.snapshot.set_pod(pod)

    @rule(number=numbers)
    def remove_pod(self, number: int) -> None:
        """Remove a pod, if it is there."""
        self.pods.pop(f"u{number}", None)
        self.snapshot.remove_pod(f"u{number}")

    @rule(spec=specs, space=spaces, labels=labels, node=names)
    def assume_and_forget(
        self, spec: PodSpec, space: str, labels: dict[str, str], node: str
    ) -> None:
        """Assume a pod and give it back, with a look at it in between."""
        pod = replace(make_pod("assumed", space).obj(), spec=spec, labels=labels)
        self.snapshot.assume(pod, node)
        self.pods[pod.uid] = replace(pod, node_name=node)
        self.verdicts_are_those_of_a_count_from_scratch()
        self.snapshot.forget(pod.uid)
        del self.pods[pod.uid]

    @rule(space=spaces, labels=labels)
    def set_namespace(self, space: str, labels: dict[str, str]) -> None:
        """Add a namespace or change its labels."""
        self.snapshot.catalog.put(Namespace(name=space, labels=labels))

    @rule(spec=specs, space=spaces, labels=labels)
    def ask_about(self, spec: PodSpec, space: str, labels: dict[str, str]) -> None:
        """Ask about one pod more from now on."""
        pod = replace(make_pod(f"q{len(self.asked)}", space).obj(), spec=spec, labels=labels)
        self.asked.append(pod)

    @rule(node=names, mask=st.integers(0, 1023))
    def try_without(self, node: str, mask: int) -> None:
        """Remove pods from a node in a dry run, and add some back."""
        row = self.snapshot.row(node)
        assume(row is not None and self.asked)
        assert row is not None
        pod = self.asked[mask % len(self.asked)]
        assume(
            all(
                constraint.selector is None or constraint.selector.requirements
                for constraint in pod.spec.topology_spread_constraints
            )
        )
        dry_run = dry_run_on(self.framework, pod, row)
        gone = [pod for i, pod in enumerate(dry_run.pods()) if mask >> i & 1]
        gone = [pod for pod in gone if not pod.is_terminating]
        for victim in gone:
            dry_run.remove(victim)
        back = gone[: len(gone) // 2]
        for victim in back:
            dry_run.add(victim)
        left_out = {pod.uid for pod in gone} - {pod.uid for pod in back}
        cluster = self._cluster(left_out)
        refusal = dry_run.refusal()
        found = refusal.reasons[0] if refusal is not None else ""
        skipped = model.affinity_is_skipped(pod, self._cluster())
        assert found == self._refusal(pod, self.nodes[node], cluster, skipped=skipped)

    @invariant()
    def verdicts_are_those_of_a_count_from_scratch(self) -> None:
        """Compare the verdicts for the two latest pods."""
        cluster = self._cluster()
        for pod in self.asked[-2:]:
            self._compare(pod, evaluate(self.framework, pod), cluster)

    def _cluster(self, left_out: set[str] | None = None) -> Cluster:
        pods = [pod for uid, pod in self.pods.items() if uid not in (left_out or set())]
        return Cluster(self.nodes, pods, self.snapshot.catalog.namespaces)

    def _compare(self, pod: Pod, verdicts: NodeVerdicts, cluster: Cluster) -> None:
        skipped = model.affinity_is_skipped(pod, cluster)
        assert ("InterPodAffinity" in verdicts.skipped_filters) == skipped
        for name, node in self.nodes.items():
            expected = self._refusal(pod, node, cluster, skipped=skipped)
            status = verdicts.refusals.get(name)
            assert (status.reasons[0] if status is not None else "") == expected, name
        fitting = [self.nodes[name] for name in verdicts.feasible]
        if not fitting:
            return
        for plugin, scores in (
            ("InterPodAffinity", model.affinity_scores(pod, fitting, cluster)),
            ("PodTopologySpread", model.spread_scores(pod, fitting, cluster)),
        ):
            assert (plugin in verdicts.skipped_scores) == (scores is None), plugin
            column = verdicts.scores.get(plugin, {})
            normalized = [column[node.name].normalized for node in fitting] if column else None
            assert normalized == scores, plugin

    def _refusal(self, pod: Pod, node: Node, cluster: Cluster, *, skipped: bool) -> str:
        if node.taints:
            return "node(s) had untolerated taint {dedicated: }"
        if any(node.labels.get(key) != value for key, value in pod.spec.node_selector.items()):
            return "node(s) didn't match Pod's node affinity/selector"
        refusal = model.spread_refusal(pod, node, cluster)
        if refusal or skipped:
            return refusal
        return model.affinity_refusal(pod, node, cluster)


Constraints.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=15,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestConstraints = Constraints.TestCase
