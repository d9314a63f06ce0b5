"""Messages and small worlds for the tests of the world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from replay.world.api.pod_record import PodRecord
from replay.world.controller import Controller
from replay.world.controllers.autoscaling.cluster_autoscaler import AutoscalerBackend
from replay.world.controllers.autoscaling.node_groups import Autoscaling
from replay.world.controllers.controller_manager import ControllerManager, controllers_in_order
from replay.world.controllers.disruption import DisruptionController, EvictionApi
from replay.world.controllers.workloads.workloads import Workloads
from replay.world.journal import Journal
from replay.world.kubelet.memory_limits import DEFAULT_KUBELET, KubeletMemory
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.kubelet.pressure import EvictionBackend, NodePressure
from replay.world.loop.inputs import RecordFeed
from replay.world.loop.outcomes import OutcomeExecutor
from replay.world.loop.scheduling_costs import SchedulingCosts
from replay.world.models import Models
from replay.world.state import WorldState
from replay.world.timeline import Action, ActionKind
from reprieve.kube.v1beta1 import (
    meta_pb2,
    node_pb2,
    object_pb2,
    pod_pb2,
    policy_pb2,
    scheduling_pb2,
    workloads_pb2,
)
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.pod import PodPhase
from services.kube.time import SECOND_NS
from tests import builders

S = SECOND_NS
_C = TypeVar("_C", bound=Controller)


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
    pod = builders.make_pod(name).uid(f"uid-{name}").labels(labels).node(node).grace_period(grace_s)
    pod.container("c", requests={"memory": "1Gi"})
    if priority is not None:
        pod.priority(priority, class_name="system-node-critical")
    if owner:
        pod.owner("ReplicaSet", owner)
    if ready:
        pod.phase(PodPhase.RUNNING).started(0).condition("Ready")
    return pod.message()


def make_node(name: str = "n", memory: str = "4Gi") -> node_pb2.Node:
    """Return a node."""
    return builders.make_node(name).capacity(cpu="4", memory=memory).message()


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
    budget = builders.make_budget(name).match_labels({"app": "web"} if labels is None else labels)
    made = budget.min_available(min_available).max_unavailable(max_unavailable).message()
    made.metadata.uid, made.metadata.generation = "", 3
    return made


def create(message: object) -> trace_pb2.Record:
    """Return the record that creates an object that is no pod."""
    return trace_pb2.Record(create=wrap(message))


def update(message: object) -> trace_pb2.Record:
    """Return the record that updates an object."""
    return trace_pb2.Record(update=wrap(message))


def wrap(message: object) -> object_pb2.KubernetesObject:
    """Return an object of the contract that holds the message."""
    wrapped = object_pb2.KubernetesObject()
    for kind in wrapped.DESCRIPTOR.oneofs[0].fields:
        if kind.message_type is message.DESCRIPTOR:  # type: ignore[attr-defined] # a message
            getattr(wrapped, kind.name).CopyFrom(message)
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


def controller_of(manager: ControllerManager, kind: type[_C]) -> _C:
    """Return the controller of a class."""
    return next(one for one in manager.controllers if isinstance(one, kind))


@dataclass
class World:
    """All parts of the world but the loop.

    `entries` is the decision log so far, `objects` are the changes of objects of no service.
    """

    models: Models = field(default_factory=Models)
    backend: EvictionBackend | None = None
    kubelet: KubeletMemory = DEFAULT_KUBELET
    autoscaler: AutoscalerBackend | None = None
    autoscaling: Autoscaling | None = None

    def __post_init__(self) -> None:
        """Put the parts together as a replay does."""
        self.entries: list[trace_pb2.Decision] = []
        self.objects: list[scheduler_pb2.Event] = []
        journal = Journal(self.entries.append, objects=self.objects.append)
        state = WorldState(journal=journal, models=self.models)
        self.state, self.cluster, self.timeline = state, state.cluster, state.timeline
        self.journal, self.admission = state.journal, state.admission
        self.lifecycle = PodLifecycle(state)
        self.run(
            controllers_in_order(
                state,
                self.lifecycle,
                self.backend,
                kubelet=self.kubelet,
                autoscaler=self.autoscaler,
                autoscaling=self.autoscaling,
            )
        )
        self.workloads = controller_of(self.manager, Workloads)
        self.budgets = controller_of(self.manager, DisruptionController)
        self.pressure = controller_of(self.manager, NodePressure)
        self.silent = self.lifecycle.silent
        self.eviction_api = EvictionApi(state, self.lifecycle, self.budgets)
        self.outcomes = OutcomeExecutor(state, self.lifecycle, SchedulingCosts(state))

    def run(self, controllers: tuple[Controller, ...]) -> None:
        """Run these controllers from now on."""
        self.manager = ControllerManager(self.cluster, controllers)
        self.inputs = RecordFeed(self.state, self.lifecycle, self.manager)

    def feed(self, now_ns: int, *records: trace_pb2.Record) -> None:
        """Feed records and let the controllers look."""
        for record in records:
            self.inputs.feed(now_ns, record)
        self.settle(now_ns)

    def settle(self, now_ns: int) -> None:
        """Let the controllers look until nothing changes any more."""
        has_changed = True
        while has_changed:
            has_changed = self.cluster.has_changed
            self.manager.reconcile(now_ns)
            if self.timeline.planned_ns(ActionKind.DRAIN, "") is not None:
                self.timeline.cancel(ActionKind.DRAIN, "")
                self.manager.act(now_ns, Action(ActionKind.DRAIN, ""))
                has_changed = True

    def run_until(self, until_ns: int) -> None:
        """Carry out what is planned for pods and budgets up to a time, controllers after each."""
        while (at_ns := self.timeline.next_ns()) is not None and at_ns <= until_ns:
            for action in self.timeline.take_due(at_ns):
                self.act(at_ns, action)
            self.settle(at_ns)
            self.kill(at_ns)

    def kill(self, now_ns: int) -> None:
        """Kill what exceeds a limit now, as a replay does before it steps any node."""
        while self.pressure.memory.has_due:
            self.pressure.memory.take_due(now_ns)
            self.settle(now_ns)

    def act(self, now_ns: int, action: Action) -> None:
        """Carry out one action."""
        self.manager.act(now_ns, action)

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
                entry.time_ns // S,
                entry.observed.WhichOneof("observed") or "",
                entry.observed.object.name,
            )
            for entry in self.entries
        ]

    def events(self) -> list[str]:
        """Take the events of the next round and return their kinds."""
        return [event.WhichOneof("event") or "" for event in self.cluster.take_events()]


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
    """Return the outcome that a pod fits nowhere; with `victims` it preempts on `node`.

    `node` "" clears the pod's nomination.
    """
    outcome = scheduler_pb2.Outcome(attempts=1)
    outcome.pop.uid, outcome.pop.cycle = uid, 1
    outcome.unschedulable.message = message
    if node:
        outcome.unschedulable.nominated_node_name = node
    elif node is not None:
        outcome.unschedulable.ends_nomination.SetInParent()
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
