"""Random workloads against a scheduler that binds, preempts and fails at random.

Whatever a scheduler decides, the world must stay one that an API server could hold.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from replay.generate.workload import GenerateOptions, generate
from replay.world.api.cluster import Cluster
from replay.world.api.pod_record import controller_uid
from replay.world.kubelet.admission import OUT_OF
from replay.world.loop.replay import Limits, Replay
from replay.world.models import Models
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS
from services.kube.workloads import IntOrPercent
from services.rpc.kube.codec import budget_from_message

TERMINAL = ("Succeeded", "Failed")


class RandomScheduler:
    """Knows the cluster and decides at random; a tick each 30 s tries the pending pods again."""

    takes_windows = False

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - chance makes the cases, not the outcome
        self._told: deque[scheduler_pb2.Round] = deque()
        self._cycle = 0
        self.cluster = Cluster()

    def send_round(self, round_: scheduler_pb2.Round, window: object = ()) -> None:  # noqa: ARG002
        """Handle a message."""
        self._told.append(round_)

    def receive_outcomes(self) -> scheduler_pb2.RoundOutcomes:
        """Decide on some pending pods at the first round of an instant."""
        round_ = self._told.popleft()
        outcomes = scheduler_pb2.RoundOutcomes()
        outcomes.next_wakeup_time_ns = (round_.time_ns // (30 * SECOND_NS) + 1) * 30 * SECOND_NS
        if round_.events_only or round_.number > 3:
            return outcomes
        for uid in list(self.cluster.pending):
            if self._random.random() < 0.7:
                decided = outcomes.outcomes.add(time_ns=round_.time_ns, attempts=1)
                self._decide(uid, decided)
                if decided.HasField("bind") and self._random.random() < 0.1:
                    decided = outcomes.outcomes.add(time_ns=round_.time_ns, attempts=2)
                    self._decide(uid, decided)
                if any(map(self._is_guarded, decided.unschedulable.preemption.victims)):
                    outcomes.more = outcomes.awaits_effects = True
                    break
        return outcomes

    def _is_guarded(self, victim: scheduler_pb2.Victim) -> bool:
        meta = self.cluster.pods[victim.pod.uid].message.metadata
        budgets = map(budget_from_message, self.cluster.budgets.values())
        return any(budget.guards(meta.namespace, meta.labels) for budget in budgets)

    def _decide(self, uid: str, outcome: scheduler_pb2.Outcome) -> None:
        self._cycle += 1
        outcome.pop.uid, outcome.pop.cycle = uid, self._cycle
        nodes = list(self.cluster.nodes)
        node = self._random.choice(nodes) if nodes else ""
        kind = self._random.random()
        if kind < 0.6 and node:
            outcome.bind.node_name = node
        elif kind < 0.9:
            outcome.unschedulable.message = f"0/{len(self.cluster.nodes)} nodes are available"
            victims = list(self.cluster.active_by_node.get(node, ()))
            if victims and kind < 0.75:
                outcome.unschedulable.nominated_node_name = node
                outcome.unschedulable.preemption.node_name = node
                for victim in self._random.sample(victims, min(2, len(victims))):
                    outcome.unschedulable.preemption.victims.add().pod.uid = victim
        else:
            outcome.failure.message = "chance"


class Watch:
    """Checks the invariants after every round."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._versions: Counter[tuple[str, str]] = Counter()
        self.rounds = 0

    def round_sent(self, round_: scheduler_pb2.Round) -> None:
        """Check the round, and the cluster as its budgets were computed for it."""
        self.rounds += 1
        for event in round_.events:
            assert event.time_ns == round_.time_ns
            self._check_version(event)
        if not round_.answers and not round_.events:
            return
        check_places(self._cluster)
        check_budgets(self._cluster)

    def outcomes(self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Ignore a decision."""

    def _check_version(self, event: scheduler_pb2.Event) -> None:
        """Check that each object's version counts its changes."""
        match event.WhichOneof("event"):
            case "patch":
                key, version = ("Pod", event.patch.pod.uid), event.patch.resource_version
            case "add" | "update":
                change = event.add if event.HasField("add") else event.update
                content = getattr(change, change.WhichOneof("object") or "")
                meta, kind = content.metadata, content.DESCRIPTOR.name
                key, version = (kind, meta.uid or meta.name), meta.resource_version
                if event.HasField("add"):
                    del self._versions[key]
            case _:
                return
        self._versions[key] += 1
        assert version == str(self._versions[key])


def check_places(cluster: Cluster) -> None:
    """Check that each pod is in one place, and that all indexes agree with the pods."""
    by_node: dict[str, set[str]] = {}
    active: dict[str, set[str]] = {}
    by_owner: dict[str, set[str]] = {}
    pending = set()
    for uid, pod in cluster.pods.items():
        assert cluster.pod_uids[pod.key] == uid == pod.message.metadata.uid
        node, ended = pod.message.spec.node_name, pod.message.status.phase in TERMINAL
        if node:
            by_node.setdefault(node, set()).add(uid)
        else:
            assert not ended
            assert not pod.is_terminating
            pending.add(uid)
        if node and not ended:
            active.setdefault(node, set()).add(uid)
        if owner := controller_uid(pod.message.metadata):
            by_owner.setdefault(owner, set()).add(uid)
    assert len(cluster.pod_uids) == len(cluster.pods)
    assert {node: set(pods) for node, pods in cluster.pods_by_node.items()} == by_node
    assert {node: set(pods) for node, pods in cluster.active_by_node.items()} == active
    assert {owner: set(pods) for owner, pods in cluster.pods_by_owner.items()} == by_owner
    assert set(cluster.pending) == pending
    assert cluster.tried == sum(
        pod.tried_at == cluster.snapshot_version for pod in cluster.pending.values()
    )


def check_budgets(cluster: Cluster) -> None:
    """Check every budget's status against a count from scratch."""
    if not cluster.budgets:
        return
    # Hundreds of pods share a few sets of labels: a selector is compared with each set once.
    alike: defaultdict[tuple[str, frozenset[tuple[str, str]]], list[Pod]] = defaultdict(list)
    for record in cluster.pods.values():
        meta = record.message.metadata
        alike[meta.namespace, frozenset(meta.labels.items())].append(record.message)
    for message in cluster.budgets.values():
        value = budget_from_message(message)
        assert value.selector is not None
        covered = [
            pod
            for (namespace, labels), pods in alike.items()
            if namespace == value.namespace and value.selector.matches(dict(labels))
            for pod in pods
        ]
        healthy = sum(
            any(
                condition.type == "Ready" and condition.status == "True"
                for condition in pod.status.conditions
            )
            and not pod.metadata.HasField("deletion_timestamp")
            for pod in covered
        )
        owners = {controller_uid(pod.metadata) for pod in covered} - {""}
        deployments = {
            cluster.replica_sets[owner].metadata.owner_references[0].uid
            for owner in owners
            if owner in cluster.replica_sets
        }
        scale = sum(cluster.deployments[uid].spec.replicas for uid in deployments)
        if any(pod.status.reason.startswith(OUT_OF) for pod in covered):
            # A Deployment that waits after rejected pods makes none when it is scaled, and the
            # status keeps the former scale: the controller has handlers of pods and budgets alone
            # (kubernetes v1.34 pkg/controller/disruption/disruption.go, NewDisruptionController).
            scale = message.status.expected_pods
        is_known = all(owner in cluster.replica_sets for owner in owners)
        counts = expected_counts(
            value.min_available, value.max_unavailable, healthy, len(covered), scale
        )
        status = message.status
        if is_known or (value.min_available is not None and not value.min_available.percent):
            assert counts == (
                status.current_healthy,
                status.desired_healthy,
                status.expected_pods,
                status.disruptions_allowed,
            )
        else:
            assert status.disruptions_allowed == 0


def expected_counts(
    least: IntOrPercent | None, most: IntOrPercent | None, healthy: int, pods: int, scale: int
) -> tuple[int, int, int, int]:
    """Return healthy, desired, expected and allowed by the textbook."""
    if most is not None:
        lost = math.ceil(scale * most.amount / 100) if most.percent else most.amount
        desired, expected = max(0, scale - lost), scale
    else:
        assert least is not None
        expected = scale if least.percent else pods
        desired = math.ceil(scale * least.amount / 100) if least.percent else least.amount
    allowed = max(0, healthy - desired) if expected else 0
    return healthy, desired, expected, allowed


def meddled(seed: int, options: GenerateOptions) -> list[trace_pb2.Record]:
    """Return a workload with which users meddle.

    Nodes and pods go, nodes are drained and fail and recover, Deployments are scaled.
    """
    random = Random(seed)  # noqa: S311 - chance makes the cases
    records = list(generate(options))
    deployments = [
        record.create.deployment for record in records if record.create.HasField("deployment")
    ]
    names = [
        record.pod_create.pod.metadata.name for record in records if record.HasField("pod_create")
    ]
    for _ in range(12):
        at_ns = random.randrange(options.window_ns)
        record = trace_pb2.Record(time_ns=at_ns)
        match random.randrange(5):
            case 0:
                name = f"node-{random.randrange(options.nodes):04d}"
                record.delete.object.CopyFrom(ObjectReference(kind="Node", name=name))
            case 1:
                name = random.choice(names)
                ref = ObjectReference(kind="Pod", namespace="default", name=name)
                record.delete.object.CopyFrom(ref)
                record.delete.grace_period_seconds = random.choice([0, 1, 30])
            case 2:
                record.node_action.node_name = f"node-{random.randrange(options.nodes):04d}"
                record.node_action.type = random.choice(
                    [
                        trace_pb2.NODE_ACTION_TYPE_DRAIN,
                        trace_pb2.NODE_ACTION_TYPE_FAIL,
                        trace_pb2.NODE_ACTION_TYPE_RECOVER,
                    ]
                )
            case 3:
                record.update.deployment.CopyFrom(random.choice(deployments))
                record.update.deployment.spec.replicas = random.randrange(8)
            case _:
                name = random.choice(deployments).metadata.name
                ref = ObjectReference(kind="Deployment", namespace="default", name=name)
                record.delete.object.CopyFrom(ref)
        records.append(record)
    return sorted(records, key=lambda record: record.time_ns)


@settings(max_examples=6)
@given(seed=st.integers(0, 2**16))
def test_whatever_is_decided_the_world_stays_whole_and_two_runs_are_equal(seed: int) -> None:
    """Places, indexes, budgets, versions and times hold after every round."""
    options = GenerateOptions(
        seed=seed,
        nodes=4,
        pods=40,
        deployments=3,
        budgets=6,
        window_ns=90 * SECOND_NS,
        service_ns=40 * SECOND_NS,
    )
    logs = []
    for _ in range(2):
        scheduler = RandomScheduler(seed)
        watch = Watch(scheduler.cluster)
        entries: list[trace_pb2.Decision] = []
        replay = Replay(
            scheduler,
            None,
            models=Models(),
            sink=entries.append,
            observer=watch,
            cluster=scheduler.cluster,
        )
        replay.run(iter(meddled(seed, options)), Limits())
        check_places(scheduler.cluster)
        assert scheduler.cluster.pods_by_node.keys() <= scheduler.cluster.nodes.keys()
        times = [entry.time_ns for entry in entries]
        assert times == sorted(times)
        assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
        assert watch.rounds > 20
        logs.append([entry.SerializeToString(deterministic=True) for entry in entries])
    assert logs[0] == logs[1]
