"""A workload with four tiers of priority: nodes, bare pods, Deployments, budgets and usage.

At the peak, pods request more than the nodes' allocatable, so higher tiers preempt lower ones. Some
pods use more memory than they request, so nodes come under pressure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from replay.hashing import KeyedRandom, name_suffix, object_uid
from replay.importers.records import RecordNumbering
from reprieve.kube.v1beta1.meta_pb2 import IntOrString, LabelSelector, ObjectReference
from reprieve.kube.v1beta1.node_pb2 import Node, Taint
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Container, Pod, Toleration
from reprieve.kube.v1beta1.policy_pb2 import PodDisruptionBudget
from reprieve.kube.v1beta1.scheduling_pb2 import PriorityClass
from reprieve.kube.v1beta1.workloads_pb2 import Deployment
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS

NAMESPACE = "default"
MIB = 1 << 20
_GROUPS = 6
GI = 1024  # MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """A template of pods with its requests."""

    id: int
    tier: Tier
    cpu_milli: int
    memory_mib: int
    pod: Pod


def generate(options: GenerateOptions) -> Iterator[trace_pb2.Record]:
    """Yield the workload's trace; times are relative and begin at 0."""
    return _Workload(options).records()


class _Workload:
    def __init__(self, options: GenerateOptions) -> None:
        self._options = options
        self._draw = KeyedRandom(options.seed)
        self._numbering = RecordNumbering()
        self._shapes = _shapes()
        self._replicas = self._split_replicas()

    def records(self) -> Iterator[trace_pb2.Record]:
        """Yield the trace."""
        options = self._options
        yield self._numbering.header(
            trace_pb2.Header(
                source="synthetic",
                importer="generate 1",
                options=options.as_text(),
                seed=options.seed,
                window_end_time_ns=options.window_ns + 2 * options.service_ns,
            )
        )
        yield from self._cluster()
        yield from self._templates()
        for index in range(options.budgets):
            yield self._numbering.record(0, create=self._budget(index))
        for at_ns, kind, index in sorted(self._arrivals()):
            if kind == "bare":
                yield self._numbering.record(at_ns, pod_create=self._bare_pod(index))
            else:
                yield from self._deployment(at_ns, index)

    def _split_replicas(self) -> list[int]:
        """Return the replicas of each Deployment; together they are about a quarter of the pods."""
        count, pods = self._options.deployments, self._options.pods
        mean = max(1, pods // (4 * count)) if count else 0
        result, pods_left = [], pods
        for index in range(count):
            result.append(min(pods_left, self._draw.between(1, 2 * mean - 1, "replicas", index)))
            pods_left -= result[-1]
        return result

    def _arrivals(self) -> Iterator[tuple[int, str, int]]:
        window_ns = self._options.window_ns
        for index in range(self._options.pods - sum(self._replicas)):
            yield self._draw.below(window_ns, "arrival", index), "bare", index
        for index in range(len(self._replicas)):
            yield self._draw.below(max(1, window_ns // 4), "roll-out", index), "deployment", index

    def _cluster(self) -> Iterator[trace_pb2.Record]:
        for tier in TIERS:
            yield self._numbering.record(0, create=priority_class(tier))
        for index in range(self._options.nodes):
            shape = self._draw.weighted(NODE_SHAPES, "node", index)
            zone = f"zone-{index % self._options.zones}"
            yield self._numbering.record(0, create=node(f"node-{index:04d}", shape, zone))

    def _templates(self) -> Iterator[trace_pb2.Record]:
        for shape in self._shapes:
            yield self._numbering.record(0, template=trace_pb2.Template(id=shape.id, pod=shape.pod))
            yield self._numbering.record(0, usage=self._usage(shape))

    def _usage(self, shape: _Shape) -> trace_pb2.UsageProfile:
        """Return the usage of a shape's pods; a leaky shape later uses more than it requests."""
        profile = trace_pb2.UsageProfile(id=shape.id, template_id=shape.id)
        percent = self._draw.between(55, 90, "memory", shape.id)
        memory_bytes = shape.memory_mib * MIB * percent // 100
        cpu_milli = shape.cpu_milli * self._draw.between(40, 80, "cpu", shape.id) // 100
        profile.segments.add(offset_duration_ns=0, cpu_milli=cpu_milli, memory_bytes=memory_bytes)
        if self._draw.below(100, "leaky", shape.id) < self._options.leaky_percent:
            for step in (1, 2, 3):
                profile.segments.add(
                    offset_duration_ns=60 * step * SECOND_NS,
                    cpu_milli=cpu_milli,
                    memory_bytes=memory_bytes + shape.memory_mib * MIB * step // 2,
                )
        return profile

    def _budget(self, index: int) -> KubernetesObject:
        """Return a budget, alternately for a Deployment and for the bare pods of a tier and group.

        A budget of bare pods allows no disruption before the peak, and few at the peak.
        """
        budget = PodDisruptionBudget()
        budget.metadata.namespace = NAMESPACE
        of_deployment = index // 2 < len(self._replicas) and index % 2 == 0
        if of_deployment:
            name = _deployment_name(index // 2)
            budget.spec.selector.match_labels["app"] = name
            if index % 4 == 0:
                budget.spec.max_unavailable.CopyFrom(IntOrString(int_value=1))
            else:
                budget.spec.min_available.CopyFrom(IntOrString(string_value="80%"))
        else:
            tier, group = _GUARDED[index // 2 // _GROUPS % len(_GUARDED)], index // 2 % _GROUPS
            name = f"{tier.name}-{index}"
            labels = {"tier": tier.name, "group": f"group-{group}"}
            budget.spec.selector.match_labels.update(labels)
            budget.spec.min_available.CopyFrom(IntOrString(int_value=self._at_peak(tier)))
        budget.metadata.name = name
        budget.metadata.uid = object_uid("PodDisruptionBudget", NAMESPACE, name)
        return KubernetesObject(pod_disruption_budget=budget)

    def _at_peak(self, tier: Tier) -> int:
        """Return the expected number of bare pods of a tier in one group at the peak."""
        options = self._options
        pods = (options.pods - sum(self._replicas)) * tier.weight
        shares = _GROUPS * sum(tier.weight for tier in TIERS)
        at_once = min(options.service_ns, options.window_ns)
        return max(1, pods * at_once // (shares * options.window_ns))

    def _bare_pod(self, index: int) -> trace_pb2.PodCreate:
        shape = self._shape("bare", index)
        create = trace_pb2.PodCreate(template_id=shape.id, life=self._life("bare", index))
        create.life.service_duration_ns = self._draw.exponential_ns(
            self._options.service_ns, "service", index
        )
        meta = create.pod.metadata
        meta.name, meta.namespace = f"pod-{index:05d}", NAMESPACE
        meta.uid = object_uid("Pod", NAMESPACE, meta.name)
        meta.labels["group"] = f"group-{self._draw.below(_GROUPS, 'group', index)}"
        return create

    def _deployment(self, at_ns: int, index: int) -> Iterator[trace_pb2.Record]:
        """Yield the lifetimes of a Deployment's pods, then the Deployment."""
        name, replicas = _deployment_name(index), self._replicas[index]
        uid = object_uid("Deployment", NAMESPACE, name)
        shape = self._shape("deployment", index)
        owner = ObjectReference(kind="Deployment", namespace=NAMESPACE, name=name, uid=uid)
        replica_set = f"{name}-{name_suffix(uid, 0, 9)}"
        expected = trace_pb2.ControllerPod(owner=owner, ordinal=0, name=replica_set)
        yield self._numbering.record(at_ns, controller_pod=expected)
        owner = ObjectReference(kind="ReplicaSet", namespace=NAMESPACE, name=replica_set)
        for ordinal in range(2 * replicas):
            life = self._life("replica", index, ordinal)
            life.usage_id = shape.id
            expected = trace_pb2.ControllerPod(owner=owner, ordinal=ordinal, life=life)
            yield self._numbering.record(at_ns, controller_pod=expected)
        deployment = Deployment()
        meta = deployment.metadata
        meta.name, meta.namespace, meta.uid = name, NAMESPACE, uid
        deployment.spec.replicas = replicas
        deployment.spec.selector.CopyFrom(LabelSelector(match_labels={"app": name}))
        template = deployment.spec.template
        template.spec.CopyFrom(shape.pod.spec)
        template.metadata.labels.update({"app": name, "tier": shape.tier.name})
        yield self._numbering.record(at_ns, create=KubernetesObject(deployment=deployment))

    def _shape(self, *what: object) -> _Shape:
        tier = self._draw.weighted([(choice, choice.weight) for choice in TIERS], "tier", *what)
        size = self._draw.weighted(POD_SIZES, "size", *what)
        return next(
            shape
            for shape in self._shapes
            if shape.tier is tier and (shape.cpu_milli, shape.memory_mib) == size
        )

    def _life(self, *what: object) -> trace_pb2.PodLife:
        return trace_pb2.PodLife(
            start_delay_duration_ns=self._draw.between(300, 3000, "start", *what) * 1_000_000,
            shutdown_duration_ns=self._draw.between(200, 8000, "shutdown", *what) * 1_000_000,
        )


def _shapes() -> list[_Shape]:
    result: list[_Shape] = []
    for tier in TIERS:
        for (cpu_milli, memory_mib), _ in POD_SIZES:
            pod = in_tier(pod_template(cpu_milli, memory_mib, labels={"tier": tier.name}), tier)
            shape = _Shape(
                id=len(result) + 1, tier=tier, cpu_milli=cpu_milli, memory_mib=memory_mib, pod=pod
            )
            result.append(shape)
    return result


def _deployment_name(index: int) -> str:
    return f"app-{index:03d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A PriorityClass, the weight of its pods among all pods, and their grace period."""

    name: str
    priority: int
    weight: int
    grace_s: int
    preemption_policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """A shape of nodes; `dedicated` is the value of their taint, "" without a taint."""

    name: str
    cores: int
    memory_mib: int
    dedicated: str = ""


TIERS = (
    Tier(name="best-effort", priority=0, weight=40, grace_s=5),
    Tier(name="batch", priority=1_000, weight=30, grace_s=10, preemption_policy="Never"),
    Tier(name="service", priority=100_000, weight=22, grace_s=30),
    Tier(name="critical", priority=1_000_000, weight=8, grace_s=30),
)
NODE_SHAPES = (
    (NodeShape(name="small", cores=8, memory_mib=32 * GI), 55),
    (NodeShape(name="medium", cores=16, memory_mib=64 * GI), 30),
    (NodeShape(name="large", cores=32, memory_mib=128 * GI), 8),
    (NodeShape(name="infra", cores=16, memory_mib=64 * GI, dedicated="infra"), 7),
)
# Requests of pods in millicores and MiB, with their weights.
POD_SIZES = (
    ((250, 512), 20),
    ((500, 2 * GI), 25),
    ((1000, 4 * GI), 25),
    ((2000, 8 * GI), 18),
    ((4000, 12 * GI), 9),
    ((6000, 20 * GI), 3),
)
_GUARDED = TIERS[:3]
"""The tiers that higher tiers preempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions:
    """The options of a workload with four tiers of priority; times are ns.

    `pods` is the number of all pods: bare pods and the replicas of `deployments`. Pods are created
    within `window_ns`; a bare pod runs for `service_ns` on average. `budgets` is the number of
    PodDisruptionBudgets. Pods of `leaky_percent` of the shapes use more memory than they request
    after a while.
    """

    seed: int = 1
    nodes: int = 100
    pods: int = 2000
    deployments: int = 24
    budgets: int = 48
    window_ns: int = 600 * SECOND_NS
    service_ns: int = 240 * SECOND_NS
    zones: int = 3
    leaky_percent: int = 10

    def as_text(self) -> dict[str, str]:
        """Return all options as texts, for the header of the trace."""
        return {name: str(getattr(self, name)) for name in self.__dataclass_fields__}


def priority_class(tier: Tier) -> KubernetesObject:
    """Return the tier's priority class."""
    result = PriorityClass(value=tier.priority)
    result.metadata.name = tier.name
    if tier.preemption_policy:
        result.preemption_policy = tier.preemption_policy
    return KubernetesObject(priority_class=result)


def node(name: str, shape: NodeShape, zone: str) -> KubernetesObject:
    """Return a ready node of the shape."""
    result = Node()
    result.metadata.name = name
    result.metadata.uid = object_uid("Node", "", name)
    result.metadata.labels.update(
        {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": shape.name,
            "topology.kubernetes.io/zone": zone,
        }
    )
    if shape.dedicated:
        result.spec.taints.append(
            Taint(key="dedicated", value=shape.dedicated, effect="NoSchedule")
        )
    amounts = {
        "cpu": str(shape.cores),
        "memory": f"{shape.memory_mib}Mi",
        "ephemeral-storage": "100Gi",
        "pods": "110",
    }
    result.status.capacity.update(amounts)
    result.status.allocatable.update(amounts)
    result.status.conditions.add(type="Ready", status="True", reason="KubeletReady")
    return KubernetesObject(node=result)


def pod_template(cpu_milli: int, memory_mib: int, *, labels: dict[str, str]) -> Pod:
    """Return a pod of one container with these requests, without a name."""
    result = Pod()
    result.metadata.labels.update(labels)
    container = Container(name="main", image="example/app:1")
    container.resources.requests.update({"cpu": f"{cpu_milli}m", "memory": f"{memory_mib}Mi"})
    result.spec.containers.append(container)
    return result


def in_tier(pod: Pod, tier: Tier) -> Pod:
    """Set the pod's class and grace period; critical pods tolerate the taint of infra nodes."""
    pod.spec.priority_class_name = tier.name
    pod.spec.termination_grace_period_seconds = tier.grace_s
    if tier.name == "critical":
        pod.spec.tolerations.append(Toleration(key="dedicated", operator="Exists"))
    return pod
