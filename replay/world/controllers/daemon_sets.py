"""DaemonSets: one pod on each node that should run it.

Only nodes that have changed, or whose daemon pod has, are looked at. A pod is replaced after it has
been removed; a failed one is deleted first, from the second failure on only after a backoff.

Source: kubernetes v1.34 pkg/controller/daemon/daemon_controller.go, manage, podsShouldBeOnNode,
syncNodes, getUnscheduledPodsWithoutNode, NodeShouldRunDaemonPod, predicates; daemon/update.go,
rollingUpdate (maxSurge is not served: old pods are deleted before new ones are created);
daemon/util/daemonset_util.go, AddOrUpdateDaemonPodTolerations,
ReplaceDaemonSetPodNodeNameNodeAffinity, GetTargetNodeName; kube-controller-manager's app/apps.go (a
backoff of 1 s to 15 min).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from replay.world.api.pod_record import PodRecord, controller_uid
from replay.world.controllers.pod_control import (
    REVISION_LABEL,
    ControllerRef,
    PodControl,
    template_hash,
)
from replay.world.models import SECOND_NS
from replay.world.state import WorldState
from replay.world.timeline import ActionKind
from reprieve.kube.v1beta1 import node_pb2, pod_pb2, workloads_pb2
from services.kube.node import Node
from services.kube.taints import TaintEffect, repels
from services.rpc.kube import fields
from services.rpc.kube.fields import time_ns
from services.rpc.kube.spec import spec_from_message

BACKOFF_NS = SECOND_NS
BACKOFF_MAX_NS = 900 * SECOND_NS
_NODE = "node.kubernetes.io"
_TOLERATED = (
    (f"{_NODE}/not-ready", "NoExecute"),
    (f"{_NODE}/unreachable", "NoExecute"),
    (f"{_NODE}/disk-pressure", "NoSchedule"),
    (f"{_NODE}/memory-pressure", "NoSchedule"),
    (f"{_NODE}/pid-pressure", "NoSchedule"),
    (f"{_NODE}/unschedulable", "NoSchedule"),
)
_OF_THE_HOST = (f"{_NODE}/network-unavailable", "NoSchedule")


@dataclass(slots=True)
class _Backoff:
    """The backoff of a node's failed pods: its length, and when it began."""

    wait_ns: int
    since_ns: int


@dataclass(slots=True, kw_only=True)
class _Set:
    """A DaemonSet; `on` holds its pods by the node that they are on or pinned to.

    `stale` are the nodes to look at, `waiting` those to look at when a backoff is over. `made_from`
    is the revision of each pod that was created here; `outdated` are pods of an older one.
    """

    message: workloads_pb2.DaemonSet
    template: workloads_pb2.PodTemplateSpec
    node_should_run: NodeShouldRun
    revision: str
    stale: dict[str, None] = field(default_factory=dict)
    on: dict[str, dict[str, PodRecord]] = field(default_factory=dict)
    made_from: dict[str, str] = field(default_factory=dict)
    backoffs: dict[str, _Backoff] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)
    outdated: dict[str, None] = field(default_factory=dict)

    def outdate(self, pod_uid: str, revision: str) -> None:
        """Note a new revision: a pod is outdated unless it was made from that one."""
        if self.made_from.setdefault(pod_uid, self.revision) == revision:
            self.outdated.pop(pod_uid, None)
        else:
            self.outdated[pod_uid] = None


class DaemonSets:
    """Keeps the pods of each set, node by node."""

    def __init__(self, state: WorldState, pod_control: PodControl) -> None:
        self._cluster = state.cluster
        self._timeline = state.timeline
        self._pod_control = pod_control
        self._sets: dict[str, _Set] = {}

    def put(self, message: workloads_pb2.DaemonSet) -> None:
        """Add or replace a DaemonSet. Raises FieldError for a template that cannot be decoded."""
        uid = message.metadata.uid
        template = tolerant(message.spec.template)
        node_should_run = NodeShouldRun(template)
        update = message.spec.update_strategy.rolling_update
        if update.HasField("max_unavailable"):
            fields.int_or_percent(update.max_unavailable, "spec.updateStrategy.maxUnavailable")
        revision = template_hash(message.spec.template)
        stored = self._sets.get(uid)
        if stored is None:
            stored = self._sets[uid] = _Set(
                message=message,
                template=template,
                node_should_run=node_should_run,
                revision=revision,
            )
            for pod in self._cluster.pods_by_owner.get(uid, {}).values():
                self._index(stored, pod)
        elif stored.revision != revision:
            for pods in stored.on.values():
                for pod_uid in pods:
                    stored.outdate(pod_uid, revision)
        stored.message, stored.template = message, template
        stored.node_should_run, stored.revision = node_should_run, revision
        stored.stale.update(dict.fromkeys(self._cluster.nodes))
        self._cluster.changed.owners[uid] = None

    def remove(self, uid: str) -> None:
        """Remove a set; its pods are deleted elsewhere."""
        del self._sets[uid]

    def nodes_changed(self, names: Iterable[str]) -> dict[str, None]:
        """Mark nodes as stale; return the sets that must be synced."""
        names = list(names)
        for each in self._sets.values():
            each.stale.update(dict.fromkeys(names))
        return dict.fromkeys(self._sets) if names else {}

    def pods_changed(self, pods: Mapping[str, pod_pb2.Pod]) -> None:
        """Mark the nodes of pods that were added, changed or removed as stale, by pod UID."""
        if self._sets:
            for uid, message in pods.items():
                self._pod_changed(uid, message)

    def _pod_changed(self, uid: str, message: pod_pb2.Pod) -> None:
        each = self._sets.get(controller_uid(message.metadata))
        if each is None:
            return
        pod = self._cluster.pods.get(uid)
        if pod is None:
            self._drop(each, uid, target(message))
        else:
            self._index(each, pod)
        each.stale[target(message)] = None

    def sync(self, now_ns: int, uid: str) -> bool:
        """Sync the stale nodes; return whether some must be looked at again at once."""
        each = self._sets[uid]
        stale, each.stale = each.stale | each.waiting, {}
        each.waiting = {}
        for node_name in stale:
            self._sync_node(now_ns, each, node_name)
        if each.outdated:
            self._roll(now_ns, each)
        return bool(each.stale)

    def _sync_node(self, now_ns: int, each: _Set, node_name: str) -> None:
        node = self._cluster.nodes.get(node_name)
        pods = list(each.on.get(node_name, {}).values())
        if node is None:
            for pod in pods:
                if not pod.node_name:
                    self._delete(now_ns, each, pod)
            return
        should_run = each.node_should_run.on(node)
        if should_run is ShouldRun.NO:
            for pod in pods:
                self._delete(now_ns, each, pod)
        elif pods:
            self._keep_one(now_ns, each, node_name, pods)
        elif should_run is ShouldRun.YES:
            self._make(now_ns, each, node_name)

    def _keep_one(self, now_ns: int, each: _Set, node_name: str, pods: list[PodRecord]) -> None:
        """Delete pods that have ended, and all but the oldest of the others."""
        running = []
        for pod in pods:
            if pod.is_terminating:
                continue
            if not pod.is_terminal:
                running.append(pod)
            elif self._may_delete(now_ns, each, node_name):
                self._delete(now_ns, each, pod)
        running.sort(
            key=lambda pod: (
                not pod.node_name,
                time_ns(pod.message.metadata.creation_timestamp),
                pod.message.metadata.name,
            )
        )
        for pod in running[1:]:
            self._delete(now_ns, each, pod)

    def _may_delete(self, now_ns: int, each: _Set, node_name: str) -> bool:
        """Return whether a pod that has ended may be deleted now; if not, plan a look."""
        backoff = each.backoffs.get(node_name)
        if backoff is None or now_ns - backoff.since_ns > 2 * BACKOFF_MAX_NS:
            each.backoffs[node_name] = _Backoff(BACKOFF_NS, now_ns)
            return True
        due_ns = backoff.since_ns + backoff.wait_ns
        if now_ns < due_ns:
            each.waiting[node_name] = None
            self._timeline.plan_earlier(due_ns, ActionKind.LOOK, each.message.metadata.uid)
            return False
        backoff.wait_ns = min(2 * backoff.wait_ns, BACKOFF_MAX_NS)
        backoff.since_ns = now_ns
        return True

    def _make(self, now_ns: int, each: _Set, node_name: str) -> None:
        owner = ControllerRef("DaemonSet", each.message.metadata)
        pod = self._pod_control.draft(owner, each.template)
        pod.metadata.labels[REVISION_LABEL] = each.revision
        pin(pod, node_name)
        if self._pod_control.create(now_ns, owner, pod, place=node_name):
            uid = pod.metadata.uid
            each.made_from[uid] = each.revision
            self._index(each, self._cluster.pods[uid])
        else:
            each.waiting[node_name] = None

    def _delete(self, now_ns: int, each: _Set, pod: PodRecord) -> None:
        if pod.is_terminating:
            return
        self._pod_control.delete(now_ns, pod)
        if pod.uid not in self._cluster.pods:
            node_name = target(pod.message)
            self._drop(each, pod.uid, node_name)
            each.stale[node_name] = None

    # Rolling updates

    def _roll(self, now_ns: int, each: _Set) -> None:
        """Delete pods of older revisions, as many as may be unavailable at once."""
        strategy = each.message.spec.update_strategy
        gone = [uid for uid in each.outdated if uid not in self._cluster.pods]
        for uid in gone:
            del each.outdated[uid]
        if strategy.type == "OnDelete":
            return
        old = [self._cluster.pods[uid] for uid in each.outdated]
        room = self._max_unavailable(each)
        for node_name, node in self._cluster.nodes.items():
            if each.node_should_run.on(node) is ShouldRun.YES:
                room -= not self._has_available(now_ns, each, node_name)
        old.sort(key=lambda pod: pod.message.metadata.name)
        for pod in old:
            if pod.is_terminating:
                continue
            if not pod.is_ready:
                self._delete(now_ns, each, pod)
            elif room > 0:
                room -= 1
                self._delete(now_ns, each, pod)

    def _max_unavailable(self, each: _Set) -> int:
        """Return maxUnavailable as a number; percentages of the desired pods round up."""
        update = each.message.spec.update_strategy.rolling_update
        if not update.HasField("max_unavailable"):
            return 1
        amount = fields.int_or_percent(update.max_unavailable, "maxUnavailable")
        if not amount.percent:
            return amount.amount
        nodes = self._cluster.nodes.values()
        wanted = sum(each.node_should_run.on(node) is ShouldRun.YES for node in nodes)
        return -(-wanted * amount.amount // 100)

    def _has_available(self, now_ns: int, each: _Set, node_name: str) -> bool:
        return any(
            pod.is_ready
            and pod.is_active
            and self._pod_control.is_available(now_ns, each.message, pod)
            for pod in each.on.get(node_name, {}).values()
        )

    def _index(self, each: _Set, pod: PodRecord) -> None:
        each.on.setdefault(target(pod.message), {})[pod.uid] = pod

    def _drop(self, each: _Set, uid: str, node_name: str) -> None:
        pods = each.on.get(node_name, {})
        pods.pop(uid, None)
        each.made_from.pop(uid, None)
        each.outdated.pop(uid, None)
        if not pods:
            each.on.pop(node_name, None)


class ShouldRun(Enum):
    """Whether a DaemonSet's pod should run on a node.

    CONTINUE: a pod that is there should continue running, and none should be started.
    """

    YES = "yes"
    CONTINUE = "continue"
    NO = "no"


def tolerant(template: workloads_pb2.PodTemplateSpec) -> workloads_pb2.PodTemplateSpec:
    """Return the template with the tolerations that every daemon pod has."""
    made = workloads_pb2.PodTemplateSpec()
    made.CopyFrom(template)
    wanted = (*_TOLERATED, _OF_THE_HOST) if made.spec.host_network else _TOLERATED
    for key, effect in wanted:
        for each in made.spec.tolerations:
            if (each.key, each.operator, each.value, each.effect) == (key, "Exists", "", effect):
                each.ClearField("toleration_seconds")
                break
        else:
            made.spec.tolerations.add(key=key, operator="Exists", effect=effect)
    return made


class NodeShouldRun:
    """Which nodes a template's pods should run on. Raises FieldError for a bad template."""

    def __init__(self, template: workloads_pb2.PodTemplateSpec) -> None:
        self._node_name = template.spec.node_name
        self._spec = spec_from_message(template.spec, field="spec.template.spec")
        affinity = self._spec.node_affinity
        self._required = affinity.required if affinity is not None else None

    def on(self, node: node_pb2.Node) -> ShouldRun:
        """Return whether a pod should run on the node: by name, labels and taints."""
        meta = node.metadata
        value = Node(name=meta.name, labels=meta.labels)
        if self._node_name not in ("", meta.name) or not value.matches(
            self._spec.node_selector.items(), self._required
        ):
            return ShouldRun.NO
        taints = fields.taints(node.spec.taints, "spec.taints")
        effects = {each.effect for each in taints if repels(each, self._spec.tolerations)}
        if TaintEffect.NO_EXECUTE in effects:
            return ShouldRun.NO
        return ShouldRun.CONTINUE if effects else ShouldRun.YES


def pin(pod: pod_pb2.Pod, node_name: str) -> None:
    """Replace a pod's required node affinity by one that only this node meets."""
    affinity = pod.spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution
    del required.node_selector_terms[:]
    term = required.node_selector_terms.add()
    term.match_fields.add(key="metadata.name", operator="In", values=[node_name])


def target(pod: pod_pb2.Pod) -> str:
    """Return the node that a daemon pod is on, or is pinned to; "" for none."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity
    for term in affinity.required_during_scheduling_ignored_during_execution.node_selector_terms:
        for each in term.match_fields:
            if each.key == "metadata.name" and each.operator == "In" and len(each.values) == 1:
                return each.values[0]
    return ""
