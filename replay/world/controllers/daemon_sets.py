"""DaemonSets: one pod on each node that admits it.

Only nodes that have changed, or whose daemon pod has, are looked at. A pod is replaced when it has
gone for good; one that failed is deleted first, and after the second time only after a backoff.

Source: kubernetes v1.34 pkg/controller/daemon/daemon_controller.go, manage, podsShouldBeOnNode,
syncNodes, getUnscheduledPodsWithoutNode, NodeShouldRunDaemonPod, predicates; daemon/update.go,
rollingUpdate (maxSurge is not served: old pods go before new ones come);
daemon/util/daemonset_util.go, AddOrUpdateDaemonPodTolerations,
ReplaceDaemonSetPodNodeNameNodeAffinity, GetTargetNodeName; kube-controller-manager's app/apps.go (a
backoff of 1 s to 15 min).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from replay.world.api.cluster import Cluster
from replay.world.api.conditions import ready_since_ns
from replay.world.api.pod_record import PodRecord, controller_uid
from replay.world.controllers.pod_template import REVISION_LABEL, Owner, PodMaker, template_hash
from replay.world.kubelet.pod_lifecycle import Lives
from replay.world.models import SECOND_NS
from replay.world.timeline import Kind, Timeline
from reprieve.kube.v1beta1 import node_pb2, pod_pb2, workloads_pb2
from services.kube.pod import PodSpec
from services.kube.taints import TaintEffect, tolerated
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
_KEEPS_AWAY = frozenset({TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE})


@dataclass(slots=True)
class _Backoff:
    """How long failed pods of a node are left alone, and since when."""

    wait_ns: int
    since_ns: int


@dataclass(slots=True, kw_only=True)
class _Set:
    """A DaemonSet; `on` holds its pods by the node that they are meant for.

    `stale` are the nodes to look at, `waiting` those to look at when a backoff is over. `made_from`
    tells the template of each pod that was made here; `outdated` are pods of an older one.
    """

    message: workloads_pb2.DaemonSet
    template: workloads_pb2.PodTemplateSpec
    placement: Placement
    revision: str
    stale: dict[str, None] = field(default_factory=dict)
    on: dict[str, dict[str, PodRecord]] = field(default_factory=dict)
    made_from: dict[str, str] = field(default_factory=dict)
    backoffs: dict[str, _Backoff] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)
    outdated: dict[str, None] = field(default_factory=dict)

    def outdate(self, pod_uid: str, revision: str) -> None:
        """Take note of a new template: a pod is outdated unless it was made from just that."""
        if self.made_from.setdefault(pod_uid, self.revision) == revision:
            self.outdated.pop(pod_uid, None)
        else:
            self.outdated[pod_uid] = None


class DaemonSets:
    """Keeps the pods of each set, node by node."""

    def __init__(self, cluster: Cluster, lives: Lives, maker: PodMaker, timeline: Timeline) -> None:
        self._cluster = cluster
        self._lives = lives
        self._maker = maker
        self._timeline = timeline
        self._sets: dict[str, _Set] = {}

    def put(self, message: workloads_pb2.DaemonSet) -> None:
        """Add or replace a DaemonSet. Raises FieldError for one whose pods cannot be read."""
        uid = message.metadata.uid
        template = tolerant(message.spec.template)
        placement = Placement(template)
        update = message.spec.update_strategy.rolling_update
        if update.HasField("max_unavailable"):
            fields.int_or_percent(update.max_unavailable, "spec.updateStrategy.maxUnavailable")
        revision = template_hash(message.spec.template)
        known = self._sets.get(uid)
        if known is None:
            known = self._sets[uid] = _Set(
                message=message, template=template, placement=placement, revision=revision
            )
            for pod in self._cluster.pods_by_owner.get(uid, {}).values():
                self._index(known, pod)
        elif known.revision != revision:
            for pods in known.on.values():
                for pod_uid in pods:
                    known.outdate(pod_uid, revision)
        known.message, known.template = message, template
        known.placement, known.revision = placement, revision
        known.stale.update(dict.fromkeys(self._cluster.nodes))
        self._cluster.changed.owners[uid] = None

    def remove(self, uid: str) -> None:
        """Forget a set."""
        del self._sets[uid]

    def nodes_changed(self, names: Iterable[str]) -> dict[str, None]:
        """Look at nodes again; return the sets that must be synced for it."""
        names = list(names)
        for each in self._sets.values():
            each.stale.update(dict.fromkeys(names))
        return dict.fromkeys(self._sets) if names else {}

    def pods_changed(self, pods: Mapping[str, pod_pb2.Pod]) -> None:
        """Look again at the nodes of pods that came, changed or went, by their UIDs."""
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
        """See to the stale nodes; answer whether some must be looked at again at once."""
        each = self._sets[uid]
        stale, each.stale = each.stale | each.waiting, {}
        each.waiting = {}
        for node_name in stale:
            self._see_to(now_ns, each, node_name)
        if each.outdated:
            self._roll(now_ns, each)
        return bool(each.stale)

    def _see_to(self, now_ns: int, each: _Set, node_name: str) -> None:
        node = self._cluster.nodes.get(node_name)
        pods = list(each.on.get(node_name, {}).values())
        if node is None:
            for pod in pods:
                if not pod.node_name:
                    self._delete(now_ns, each, pod)
            return
        verdict = each.placement.verdict(node)
        if verdict is Verdict.NONE:
            for pod in pods:
                self._delete(now_ns, each, pod)
        elif pods:
            self._keep_one(now_ns, each, node_name, pods)
        elif verdict is Verdict.RUN:
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
        """Tell whether a pod that has ended may go now; if not, plan to look again."""
        known = each.backoffs.get(node_name)
        if known is None or now_ns - known.since_ns > 2 * BACKOFF_MAX_NS:
            each.backoffs[node_name] = _Backoff(BACKOFF_NS, now_ns)
            return True
        due_ns = known.since_ns + known.wait_ns
        if now_ns < due_ns:
            each.waiting[node_name] = None
            self._timeline.plan_earlier(due_ns, Kind.LOOK, each.message.metadata.uid)
            return False
        known.wait_ns = min(2 * known.wait_ns, BACKOFF_MAX_NS)
        known.since_ns = now_ns
        return True

    def _make(self, now_ns: int, each: _Set, node_name: str) -> None:
        owner = Owner("DaemonSet", each.message.metadata)
        pod = self._maker.draft(owner, each.template)
        pod.metadata.labels[REVISION_LABEL] = each.revision
        pin(pod, node_name)
        if self._maker.create(now_ns, owner, pod, place=node_name):
            uid = pod.metadata.uid
            each.made_from[uid] = each.revision
            self._index(each, self._cluster.pods[uid])

    def _delete(self, now_ns: int, each: _Set, pod: PodRecord) -> None:
        if pod.is_terminating:
            return
        self._lives.delete(now_ns, pod, None, "deleted")
        if pod.uid not in self._cluster.pods:
            node_name = target(pod.message)
            self._drop(each, pod.uid, node_name)
            each.stale[node_name] = None

    # Rolling updates

    def _roll(self, now_ns: int, each: _Set) -> None:
        """Delete pods of older templates, as many as may be away at once."""
        strategy = each.message.spec.update_strategy
        gone = [uid for uid in each.outdated if uid not in self._cluster.pods]
        for uid in gone:
            del each.outdated[uid]
        if strategy.type == "OnDelete":
            return
        old = [self._cluster.pods[uid] for uid in each.outdated]
        room = self._may_be_away(each)
        for node_name, node in self._cluster.nodes.items():
            if each.placement.verdict(node) is Verdict.RUN:
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

    def _may_be_away(self, each: _Set) -> int:
        """Return maxUnavailable of the nodes that are to have a pod; percentages round up."""
        update = each.message.spec.update_strategy.rolling_update
        if not update.HasField("max_unavailable"):
            return 1
        amount = fields.int_or_percent(update.max_unavailable, "maxUnavailable")
        if not amount.percent:
            return amount.amount
        nodes = self._cluster.nodes.values()
        wanted = sum(each.placement.verdict(node) is Verdict.RUN for node in nodes)
        return -(-wanted * amount.amount // 100)

    def _has_available(self, now_ns: int, each: _Set, node_name: str) -> bool:
        """Tell whether a node's pod has been ready long enough."""
        wait_ns = each.message.spec.min_ready_seconds * SECOND_NS
        for pod in each.on.get(node_name, {}).values():
            if pod.is_ready and not pod.is_terminating and not pod.is_terminal:
                due_ns = ready_since_ns(pod.message.status) + wait_ns
                if due_ns <= now_ns:
                    return True
                self._timeline.plan_earlier(due_ns, Kind.LOOK, each.message.metadata.uid)
        return False

    def _index(self, each: _Set, pod: PodRecord) -> None:
        each.on.setdefault(target(pod.message), {})[pod.uid] = pod

    def _drop(self, each: _Set, uid: str, node_name: str) -> None:
        pods = each.on.get(node_name, {})
        pods.pop(uid, None)
        each.made_from.pop(uid, None)
        each.outdated.pop(uid, None)
        if not pods:
            each.on.pop(node_name, None)


class Verdict(Enum):
    """What a DaemonSet does on a node: have a pod, keep one that is there, or have none."""

    RUN = "run"
    KEEP = "keep"
    NONE = "none"


def tolerant(template: workloads_pb2.PodTemplateSpec) -> workloads_pb2.PodTemplateSpec:
    """Return the template with the tolerations that every daemon pod has."""
    made = workloads_pb2.PodTemplateSpec()
    made.CopyFrom(template)
    wanted = (*_TOLERATED, _OF_THE_HOST) if made.spec.host_network else _TOLERATED
    for key, effect in wanted:
        for known in made.spec.tolerations:
            said = (known.key, known.operator, known.value, known.effect)
            if said == (key, "Exists", "", effect):
                known.ClearField("toleration_seconds")
                break
        else:
            made.spec.tolerations.add(key=key, operator="Exists", effect=effect)
    return made


class Placement:
    """Which nodes one template admits. Raises FieldError for a template that cannot be read."""

    def __init__(self, template: workloads_pb2.PodTemplateSpec) -> None:
        self._node_name = template.spec.node_name
        self._spec: PodSpec = spec_from_message(template.spec, field="spec.template.spec")

    def verdict(self, node: node_pb2.Node) -> Verdict:
        """Tell what to do on a node."""
        if self._node_name not in ("", node.metadata.name) or not self._fits(node):
            return Verdict.NONE
        taints = fields.taints(node.spec.taints, "spec.taints")
        refused = {
            taint.effect
            for taint in taints
            if taint.effect in _KEEPS_AWAY and not tolerated(taint, self._spec.tolerations)
        }
        if TaintEffect.NO_EXECUTE in refused:
            return Verdict.NONE
        return Verdict.KEEP if refused else Verdict.RUN

    def _fits(self, node: node_pb2.Node) -> bool:
        labels = node.metadata.labels
        if any(labels.get(key) != text for key, text in self._spec.node_selector.items()):
            return False
        affinity = self._spec.node_affinity
        if affinity is None or affinity.required is None:
            return True
        return affinity.required.matches(labels, node.metadata.name)


def pin(pod: pod_pb2.Pod, node_name: str) -> None:
    """Let a pod's required node affinity admit one node only; what it asked for before goes."""
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
