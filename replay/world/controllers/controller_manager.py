"""The controllers of a replayed cluster: the list of them, and how they are run.

A new controller is a module with a class that derives from Controller, and a line in the list.

Source: kubernetes v1.34 cmd/kube-controller-manager/app, NewControllerDescriptors (upstream's run
at the same time; here they run one after the other).
"""

from __future__ import annotations

from collections.abc import Sequence

from replay.world.api.cluster import Cluster
from replay.world.api.pod_record import PodRecord
from replay.world.controller import NEVER_NS, Controller, Ending
from replay.world.controllers.autoscaling.cloud import Cloud
from replay.world.controllers.autoscaling.cluster_autoscaler import (
    AutoscalerBackend,
    ClusterAutoscaler,
)
from replay.world.controllers.autoscaling.node_groups import Autoscaling
from replay.world.controllers.device_claims import DeviceClaims
from replay.world.controllers.device_taint_eviction import DeviceTaintEviction
from replay.world.controllers.disruption import DisruptionController, EvictionApi
from replay.world.controllers.drains import Drains
from replay.world.controllers.node_lifecycle import NodeLifecycle
from replay.world.controllers.node_monitor import NodeMonitor
from replay.world.controllers.pod_gc import PodGarbageCollection
from replay.world.controllers.taint_eviction import TaintEviction
from replay.world.controllers.workloads.workloads import Workloads
from replay.world.kubelet.annotations import UsageRule
from replay.world.kubelet.memory_limits import DEFAULT_KUBELET, KubeletMemory
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.kubelet.pressure import EvictionBackend, NodePressure
from replay.world.kubelet.resizes import InPlaceResizes
from replay.world.state import WorldState
from replay.world.timeline import Action
from reprieve.kube.v1beta1 import meta_pb2, object_pb2
from reprieve.trace.v1beta1 import trace_pb2


def controllers_in_order(
    state: WorldState,
    lifecycle: PodLifecycle,
    eviction: EvictionBackend | None,
    *,
    usage: Sequence[UsageRule] = (),
    kubelet: KubeletMemory = DEFAULT_KUBELET,
    autoscaler: AutoscalerBackend | None = None,
    autoscaling: Autoscaling | None = None,
) -> tuple[Controller, ...]:
    """Return all controllers of a cluster; with an autoscaler, for which groups it works.

    Their order is a part of determinism: each sees in the same round what those before it have
    done, and what those after it do in the next one.
    """
    pressure = NodePressure(state, lifecycle, eviction, usage, kubelet)
    monitor = NodeMonitor(state)
    nodes = NodeLifecycle(state, lifecycle, pressure, monitor)
    budgets = DisruptionController(state)
    eviction_api = EvictionApi(state, lifecycle, budgets)
    scaling: tuple[Controller, ...] = ()
    if autoscaler is not None and autoscaling is not None:
        cloud = Cloud(state, nodes, autoscaling)
        scaling = (
            cloud,
            ClusterAutoscaler(state, nodes, eviction_api, cloud, autoscaler, autoscaling),
        )
    return (
        # Nodes first: their taints and the readiness of their pods decide what follows.
        nodes,
        monitor,
        # Pods of tainted nodes and devices are deleted before their owners count pods.
        TaintEviction(state, lifecycle),
        DeviceTaintEviction(state, lifecycle),
        # Workloads create, delete and adopt pods until nothing changes any more.
        Workloads(state, lifecycle),
        # Claims are made for these pods, and freed of pods that are done.
        DeviceClaims(state, lifecycle),
        # Budgets count after all of these, so that every attempt and eviction reads a status of
        # its own moment.
        budgets,
        # What reads that status, or only counts what remains.
        Drains(state, nodes, eviction_api),
        PodGarbageCollection(state, lifecycle),
        # Kubelets follow no changes of others, but for resizes that wait for room.
        InPlaceResizes(state, lifecycle, kubelet),
        pressure,
        lifecycle,
        # Scans come last at an instant, after the steps of nodes.
        *scaling,
    )


class ControllerManager:
    """Runs controllers in their order."""

    def __init__(self, cluster: Cluster, controllers: tuple[Controller, ...]) -> None:
        self._cluster = cluster
        self.controllers = controllers
        self._acting = {kind: one for one in controllers for kind in one.actions}
        # Hooks of every round and of every pod are called only on controllers that implement them.
        self._reconciling = _overriding("reconcile", controllers)
        self._settling = _overriding("settle", controllers)
        self._concerned = _overriding("concerns", controllers)
        self._waking = _overriding("wakeup_ns", controllers)

    def keeps(self, kind: str) -> bool:
        """Return whether a controller stores objects of a kind."""
        return any(kind in controller.keeps for controller in self.controllers)

    def put(self, now_ns: int, kind: str, message: object_pb2.KubernetesObject) -> None:
        """Pass on a user's version of an object. Raises FieldError for an invalid one."""
        for controller in self.controllers:
            if kind in controller.keeps or kind in controller.watches:
                controller.put(now_ns, message)

    def remove(self, now_ns: int, ref: meta_pb2.ObjectReference) -> None:
        """Pass on a user's deletion of an object."""
        for controller in self.controllers:
            if ref.kind in controller.keeps or ref.kind in controller.watches:
                controller.remove(now_ns, ref)

    def read(self, now_ns: int, record: trace_pb2.Record) -> None:
        """Pass on a record of the trace that is not an object."""
        kind = record.WhichOneof("record")
        for controller in self.controllers:
            if kind in controller.reads:
                controller.read(now_ns, record)

    def act(self, now_ns: int, action: Action) -> None:
        """Carry out a planned action."""
        self._acting[action.kind].act(now_ns, action)

    def reconcile(self, now_ns: int) -> None:
        """Let all controllers process the changes, in their order."""
        changed = self._cluster.take_changed()
        for controller in self._reconciling:
            controller.reconcile(now_ns, changed)
            if self._cluster.has_changed:
                changed.add(self._cluster.take_changed())

    def settle(self, now_ns: int) -> bool:
        """Let the first controller that has waited for the end of the instant's rounds act."""
        # No generator: it would cost two calls at each instant.
        for controller in self._settling:  # noqa: SIM110 - see above
            if controller.settle(now_ns):
                return True
        return False

    def concerns(self, pod: PodRecord) -> bool:
        """Return whether a controller may act on a pod that is bound, starts or ends."""
        # No generator: it would cost a call for each controller, three times a pod.
        for controller in self._concerned:  # noqa: SIM110 - see above
            if controller.concerns(pod):
                return True
        return False

    def wakeup_ns(self, now_ns: int, ended: int) -> int:
        """Return when a controller would act if so many more pods had ended; NEVER_NS: never."""
        times = (controller.wakeup_ns(now_ns, ended) for controller in self._waking)
        return min(times, default=NEVER_NS)

    def conclude(self, ending: Ending) -> None:
        """Let all controllers note what people should know of the end."""
        for controller in self.controllers:
            controller.conclude(ending)


def _overriding(method: str, controllers: tuple[Controller, ...]) -> tuple[Controller, ...]:
    """Return the controllers that implement a method."""
    nothing = getattr(Controller, method)
    return tuple(one for one in controllers if getattr(type(one), method) is not nothing)
