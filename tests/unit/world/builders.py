"""Messages and small worlds for the tests of the world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from replay.world.api.admission import PriorityAdmission
from replay.world.api.cluster import Cluster
from replay.world.api.pod_record import PodRecord
from replay.world.controllers.controllers import Controllers
from replay.world.controllers.disruption import DisruptionController, Evictions
from replay.world.controllers.node_lifecycle import NODE_KINDS, NodeLives
from replay.world.controllers.taint_eviction import TaintEviction
from replay.world.journal import Journal
from replay.world.kubelet.pod_lifecycle import Lives
from replay.world.kubelet.pressure import EvictionBackend, Pressure
from replay.world.loop.inputs import Inputs
from replay.world.loop.outcomes import Outcomes
from replay.world.models import Models
from replay.world.timeline import Action, Kind, Timeline
from reprieve.kube.v1beta1 import (
    meta_pb2,
    node_pb2,
    object_pb2,
    pod_pb2,
    policy_pb2,
    scheduling_pb2,
    workloads_pb2,
)
from reprieve.kube.v1beta1.meta_pb2 import IntOrString
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2

S = 1_000_000_000


def make_pod(
    name: str = "p",
    *,
    node: str = "",
    labels: Mapping[str, str] | None = None,
    owner: str = "",
    priority: int | None = 0,
    grace_s: int | None = None,
    ready: bool = False,
) -> pod_pb2.Pod:
    """Return a pod of the default namespace with one container; its UID is "uid-<name>"."""
    pod = pod_pb2.Pod()
    pod.metadata.name, pod.metadata.namespace, pod.metadata.uid = name, "default", f"uid-{name}"
    pod.metadata.labels.update(labels or {})
    pod.spec.node_name = node
    pod.spec.containers.add(name="c").resources.requests["memory"] = "1Gi"
    if priority is not None:
        pod.spec.priority = priority
        pod.spec.priority_class_name = "system-node-critical"
    if grace_s is not None:
        pod.spec.termination_grace_period_seconds = grace_s
    if owner:
        pod.metadata.owner_references.add(
            kind="ReplicaSet", name=owner, uid=f"uid-{owner}", controller=True
        )
    if ready:
        pod.status.phase = "Running"
        pod.status.start_time.FromNanoseconds(0)
        pod.status.conditions.add(type="Ready", status="True")
    return pod


def make_node(name: str = "n", memory: str = "4Gi") -> node_pb2.Node:
    """Return a node."""
    node = node_pb2.Node()
    node.metadata.name = name
    node.metadata.uid = f"uid-{name}"
    for amounts in (node.status.capacity, node.status.allocatable):
        amounts["memory"] = memory
        amounts["cpu"] = "4"
        amounts["pods"] = "110"
    return node


def make_class(
    name: str, value: int, *, default: bool = False, policy: str = ""
) -> scheduling_pb2.PriorityClass:
    """Return a priority class."""
    made = scheduling_pb2.PriorityClass(value=value, global_default=default)
    made.metadata.name = name
    if policy:
        made.preemption_policy = policy
    return made


def make_replica_set(name: str = "web", replicas: int = 1) -> workloads_pb2.ReplicaSet:
    """Return a ReplicaSet whose pods have the label app=<name>; its UID is "uid-<name>"."""
    made = workloads_pb2.ReplicaSet()
    made.metadata.name, made.metadata.namespace = name, "default"
    made.metadata.uid = f"uid-{name}"
    made.spec.replicas = replicas
    made.spec.template.metadata.labels["app"] = name
    made.spec.template.spec.containers.add(name="c")
    return made


def make_deployment(
    name: str = "app", replicas: int = 1, image: str = ""
) -> workloads_pb2.Deployment:
    """Return a Deployment; its UID is "uid-<name>"."""
    made = workloads_pb2.Deployment()
    made.metadata.name, made.metadata.namespace = name, "default"
    made.metadata.uid = f"uid-{name}"
    made.spec.replicas = replicas
    made.spec.template.metadata.labels["app"] = name
    made.spec.template.spec.containers.add(name="c", image=image)
    return made


def make_budget(
    name: str = "b",
    *,
    min_available: int | str | None = None,
    max_unavailable: int | str | None = None,
    labels: Mapping[str, str] | None = None,
) -> policy_pb2.PodDisruptionBudget:
    """Return a budget over the pods with `labels` (app=web by default)."""
    made = policy_pb2.PodDisruptionBudget()
    made.metadata.name, made.metadata.namespace, made.metadata.generation = name, "default", 3
    made.spec.selector.match_labels.update({"app": "web"} if labels is None else labels)
    if min_available is not None:
        made.spec.min_available.CopyFrom(_value(min_available))
    if max_unavailable is not None:
        made.spec.max_unavailable.CopyFrom(_value(max_unavailable))
    return made


def _value(amount: int | str) -> IntOrString:
    if isinstance(amount, str):
        return IntOrString(string_value=amount)
    return IntOrString(int_value=amount)


def create(message: object) -> trace_pb2.Record:
    """Return the record that creates an object that is no pod."""
    return trace_pb2.Record(create=wrap(message))


def update(message: object) -> trace_pb2.Record:
    """Return the record that updates an object."""
    return trace_pb2.Record(update=wrap(message))


def wrap(message: object) -> object_pb2.KubernetesObject:
    """Return an object of the contract that holds the message."""
    wrapped = object_pb2.KubernetesObject()
    for each in wrapped.DESCRIPTOR.oneofs[0].fields:
        if each.message_type is message.DESCRIPTOR:  # type: ignore[attr-defined] # a message
            getattr(wrapped, each.name).CopyFrom(message)
            return wrapped
    raise AssertionError(type(message))


def create_pod(pod: pod_pb2.Pod, **life: int | bool) -> trace_pb2.Record:
    """Return the record that creates a pod, with the fields of its life."""
    create_ = trace_pb2.PodCreate(pod=pod, life=trace_pb2.PodLife(**life))  # type: ignore[arg-type] # by name
    return trace_pb2.Record(pod_create=create_)


def delete(kind: str, name: str, *, grace_s: int | None = None) -> trace_pb2.Record:
    """Return the record that deletes an object of the default namespace."""
    ref = meta_pb2.ObjectReference(kind=kind, namespace="default", name=name)
    return trace_pb2.Record(delete=trace_pb2.Delete(object=ref, grace_period_seconds=grace_s))


@dataclass
class World:
    """All parts of the world but the loop; `entries` is the decision log so far."""

    models: Models = field(default_factory=Models)
    backend: EvictionBackend | None = None

    def __post_init__(self) -> None:
        """Put the parts together as a replay does."""
        self.entries: list[trace_pb2.Decision] = []
        self.cluster = Cluster()
        self.timeline = Timeline()
        self.journal = Journal(self.entries.append)
        self.admission = PriorityAdmission()
        self.lives = Lives(self.cluster, self.timeline, self.admission, self.models, self.journal)
        self.controllers = Controllers(self.cluster, self.lives, self.journal, self.timeline)
        self.budgets = DisruptionController(
            self.cluster,
            self.timeline,
            recorded_status=self.models.recorded_budget_status,
        )
        self.outcomes = Outcomes(self.cluster, self.lives, self.journal)
        self.pressure = Pressure(
            self.cluster, self.timeline, self.lives, self.journal, self.backend
        )
        self.evictions = Evictions(self.cluster, self.lives, self.budgets)
        self.taints = TaintEviction(
            self.cluster, self.lives, self.timeline, self.models.toleration_s
        )
        self.nodes = NodeLives(
            self.cluster,
            self.timeline,
            self.lives,
            self.controllers,
            self.pressure,
            self.evictions,
            models=self.models,
            journal=self.journal,
        )
        self.inputs = Inputs(
            self.cluster,
            self.lives,
            self.controllers,
            self.budgets,
            self.admission,
            self.pressure,
            self.journal,
            nodes=self.nodes,
        )

    def feed(self, now_ns: int, *records: trace_pb2.Record) -> None:
        """Feed records and let the controllers look."""
        for record in records:
            self.inputs.feed(now_ns, record)
        self.settle(now_ns)

    def settle(self, now_ns: int) -> None:
        """Let the controllers look until nothing changes any more."""
        while True:
            changed = self.cluster.take_changed()
            kinds = (changed.pods, changed.owners, changed.deployments, changed.budgets)
            if not any((*kinds, changed.nodes)):
                self.nodes.reconcile()
                return
            self.taints.reconcile(now_ns, changed)
            changed.add(self.cluster.take_changed())
            self.controllers.reconcile(now_ns, changed)
            changed.pods.update(self.cluster.changed.pods)
            self.budgets.reconcile(now_ns, changed)

    def run_until(self, until_ns: int) -> None:
        """Carry out what is planned for pods and budgets up to a time, controllers after each."""
        while (at_ns := self.timeline.next_ns()) is not None and at_ns <= until_ns:
            for action in self.timeline.take_due(at_ns):
                self.act(at_ns, action)
            self.settle(at_ns)

    def act(self, now_ns: int, action: Action) -> None:
        """Carry out one action."""
        pod = self.cluster.pods.get(action.key)
        if action.kind is Kind.RECHECK:
            self.budgets.recheck(action.key)
        elif action.kind is Kind.LOOK:
            self.controllers.look(action.key)
        elif action.kind in NODE_KINDS:
            self.nodes.act(now_ns, action.kind, action.key)
        elif pod is not None and not self.nodes.holds_back(action, pod):
            if action.kind is Kind.TAINT:
                self.taints.act(now_ns, pod)
            else:
                self.lives.act(now_ns, action.kind, pod)

    def pod(self, name: str) -> PodRecord:
        """Return a pod of the default namespace."""
        return self.cluster.pods[self.cluster.pod_uids[f"default/{name}"]]

    def names(self) -> list[str]:
        """Return the pods' names in the order of their coming."""
        return [pod.message.metadata.name for pod in self.cluster.pods.values()]

    def status(self, name: str = "b") -> policy_pb2.PodDisruptionBudgetStatus:
        """Return a budget's status."""
        return self.cluster.budgets[f"default/{name}"].status

    def refusals(self) -> list[str]:
        """Return what was refused, in order."""
        return [text for kind, text in self.journal.notes if kind == "refused"]

    def log(self) -> list[tuple[int, str, str]]:
        """Return the decision log as (seconds, what, object)."""
        return [
            (
                each.at_ns // S,
                each.observed.WhichOneof("observed") or "",
                each.observed.object.name,
            )
            for each in self.entries
        ]

    def events(self) -> list[str]:
        """Take the events of the next round and return their kinds."""
        return [each.WhichOneof("event") or "" for each in self.cluster.take_events()]


def bind(uid: str, node: str, *, cycle: int = 1) -> scheduler_pb2.Outcome:
    """Return the outcome that binds a pod."""
    outcome = scheduler_pb2.Outcome(attempts=1)
    outcome.pop.uid, outcome.pop.cycle = uid, cycle
    outcome.bind.node_name = node
    return outcome


def unschedulable(
    uid: str,
    message: str = "0/1 nodes are available",
    *,
    node: str | None = None,
    victims: Sequence[str] = (),
    cleared: Sequence[str] = (),
) -> scheduler_pb2.Outcome:
    """Return the outcome that a pod fits nowhere; with `victims` it preempts on `node`."""
    outcome = scheduler_pb2.Outcome(attempts=1)
    outcome.pop.uid, outcome.pop.cycle = uid, 1
    outcome.unschedulable.message = message
    if node is not None:
        outcome.unschedulable.nominated_node_name = node
    if victims:
        preemption = outcome.unschedulable.preemption
        preemption.node_name = node or ""
        for victim in victims:
            preemption.victims.add().pod.uid = victim
        for other in cleared:
            preemption.cleared_nominations.add().uid = other
    return outcome


def failure(uid: str, message: str = "boom") -> scheduler_pb2.Outcome:
    """Return the outcome of an attempt that failed."""
    outcome = scheduler_pb2.Outcome(attempts=1)
    outcome.pop.uid, outcome.pop.cycle = uid, 1
    outcome.failure.message = message
    return outcome
