"""DaemonSets: one pod on each node that should run it.

Only nodes that have changed, or whose daemon pod has, are looked at. A pod is replaced after it has
been removed; a failed one is deleted first, from the second failure on only after a backoff.

Source: kubernetes v1.34 pkg/controller/daemon/daemon_controller.go, manage, podsShouldBeOnNode,
syncNodes, getUnscheduledPodsWithoutNode; daemon/update.go, rollingUpdate
(daemon_rolling_update.py has its rules); daemon/util/daemonset_util.go, IsPodUpdated,
ReplaceDaemonSetPodNodeNameNodeAffinity, GetTargetNodeName (services/kube/daemon_pods.py has the
other rules); kube-controller-manager's app/apps.go (a backoff of 1 s to 15 min).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from replay.world.api.pod_record import PodRecord, controller_uid
from replay.world.controllers.workloads import daemon_rolling_update
from replay.world.controllers.workloads.daemon_rolling_update import Bounds, DaemonNode
from replay.world.controllers.workloads.pod_control import (
    REVISION_LABEL,
    ControllerRef,
    PodControl,
    shows_template,
    template_hash,
)
from replay.world.controllers.workloads.unfinished_rollout import ON_DELETE, UnfinishedRollout
from replay.world.state import WorldPart, WorldState
from replay.world.timeline import ActionKind
from reprieve.kube.v1beta1 import node_pb2, pod_pb2, workloads_pb2
from services.kube import daemon_pods
from services.kube.daemon_pods import ShouldRun
from services.kube.node import Node
from services.kube.time import SECOND_NS
from services.rpc.kube import fields
from services.rpc.kube.fields import time_ns
from services.rpc.kube.spec import spec_from_message

BACKOFF_NS = SECOND_NS
BACKOFF_MAX_NS = 900 * SECOND_NS
TEMPLATE_GENERATION = "pod-template-generation"
DAEMON_SET_GENERATION = "deprecated.daemonset.template.generation"
"""The label of a daemon pod, and the DaemonSet's annotation, with the number of its template."""


@dataclass(slots=True)
class _Backoff:
    """The backoff of a node's failed pods: its length, and when it began."""

    wait_ns: int
    since_ns: int


@dataclass(slots=True, kw_only=True)
class _Set:
    """A DaemonSet; `on` holds its pods by the node that they are on or pinned to.

    `stale` are the nodes to look at, `waiting` those to look at when a backoff is over. `made_from`
    is the revision of each pod that was created here, "" for one of an older template; `outdated`
    are pods of an older one than `revision`. `nodes` are the nodes with their pods as they were
    last looked at, while some pod is outdated.
    """

    message: workloads_pb2.DaemonSet
    template: workloads_pb2.PodTemplateSpec
    node_should_run: NodeShouldRun
    revision: str
    bounds: Bounds
    stale: dict[str, None] = field(default_factory=dict)
    on: dict[str, dict[str, PodRecord]] = field(default_factory=dict)
    made_from: dict[str, str] = field(default_factory=dict)
    backoffs: dict[str, _Backoff] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)
    outdated: dict[str, None] = field(default_factory=dict)
    nodes: dict[str, DaemonNode] = field(default_factory=dict)

    @property
    def rolls(self) -> bool:
        """Return whether pods of older templates are replaced without being deleted by a user."""
        return self.message.spec.update_strategy.type != ON_DELETE

    @property
    def allows_surge(self) -> bool:
        """Return whether a node may have a new pod beside its old one."""
        return self.rolls and self.bounds.allows_surge

    def outdate(self, pod_uid: str, revision: str) -> None:
        """Note a new revision: a pod is outdated unless it was made from that one."""
        if self.made_from.setdefault(pod_uid, self.revision) == revision:
            self.outdated.pop(pod_uid, None)
        else:
            self.outdated[pod_uid] = None


class DaemonSets(WorldPart):
    """Keeps the pods of each set, node by node."""

    _sets: dict[str, _Set]

    def __init__(self, state: WorldState, pod_control: PodControl) -> None:
        super().__init__(state)
        self._pod_control = pod_control

    def put(self, message: workloads_pb2.DaemonSet) -> None:
        """Add or replace a DaemonSet. Raises FieldError for a template that cannot be decoded."""
        uid = message.metadata.uid
        template = tolerant(message.spec.template)
        node_should_run = NodeShouldRun(template)
        bounds = daemon_rolling_update.bounds_of(message.spec)
        revision = template_hash(message.spec.template)
        stored = self._sets.get(uid)
        if stored is None:
            stored = self._sets[uid] = _Set(
                message=message,
                template=template,
                node_should_run=node_should_run,
                revision=revision,
                bounds=bounds,
            )
        # Also before a new template: it may come at the very moment at which its pods were created.
        for pod in self._cluster.pods_by_owner.get(uid, {}).values():
            self._index(stored, pod)
        if stored.revision != revision:
            for pods in stored.on.values():
                for pod_uid in pods:
                    stored.outdate(pod_uid, revision)
        stored.message, stored.template = message, template
        stored.node_should_run, stored.revision = node_should_run, revision
        stored.bounds = bounds
        stored.stale.update(dict.fromkeys(self._cluster.nodes))
        self._cluster.changed.owners[uid] = None

    def remove(self, uid: str) -> None:
        """Remove a set; its pods are deleted elsewhere."""
        del self._sets[uid]

    def may_claim(self, _uid: str, _pod: PodRecord) -> bool:
        """Return True: a set claims pods by their labels alone."""
        return True

    def adopted(self, uid: str, pod: PodRecord) -> None:
        """Note whether an adopted pod is of the current template, as far as it shows."""
        daemon_set = self._sets[uid]
        is_current = shows_template(pod.message, daemon_set.message.spec.template)
        daemon_set.made_from[pod.uid] = daemon_set.revision if is_current else ""
        if not is_current:
            daemon_set.outdated[pod.uid] = None

    def disowned(self, uid: str, pod_uid: str, pod: pod_pb2.Pod) -> None:
        """Look again at the node of a released pod."""
        daemon_set, node_name = self._sets[uid], target(pod)
        self._drop(daemon_set, pod_uid, node_name)
        daemon_set.stale[node_name] = None

    def nodes_changed(self, names: Iterable[str]) -> dict[str, None]:
        """Mark nodes as stale; return the sets that must be synced."""
        names = list(names)
        for daemon_set in self._sets.values():
            daemon_set.stale.update(dict.fromkeys(names))
        return dict.fromkeys(self._sets) if names else {}

    def pods_changed(self, pods: Mapping[str, pod_pb2.Pod]) -> None:
        """Mark the nodes of pods that were added, changed or removed as stale, by pod UID."""
        if self._sets:
            for uid, message in pods.items():
                self._pod_changed(uid, message)

    def _pod_changed(self, uid: str, message: pod_pb2.Pod) -> None:
        daemon_set = self._sets.get(controller_uid(message.metadata))
        if daemon_set is None:
            return
        pod = self._cluster.pods.get(uid)
        if pod is None:
            self._drop(daemon_set, uid, target(message))
        else:
            self._index(daemon_set, pod)
        daemon_set.stale[target(message)] = None

    def sync(self, now_ns: int, uid: str) -> bool:
        """Sync the stale nodes; return whether some must be synced again at once."""
        daemon_set = self._sets[uid]
        stale, daemon_set.stale = daemon_set.stale | daemon_set.waiting, {}
        daemon_set.waiting = {}
        for node_name in stale:
            self._sync_node(now_ns, daemon_set, node_name)
        if daemon_set.outdated and daemon_set.rolls:
            self._roll(now_ns, daemon_set, stale)
        elif daemon_set.nodes:
            daemon_set.nodes.clear()
        return bool(daemon_set.stale)

    def unfinished(self) -> Iterator[str]:
        """Yield a text for each rollout that is under way or waits, for users."""
        for daemon_set in self._sets.values():
            pods = [
                uid
                for on_node in daemon_set.on.values()
                for uid, pod in on_node.items()
                if pod.is_active
            ]
            older = sum(uid in daemon_set.outdated for uid in pods)
            if older:
                rollout = UnfinishedRollout(
                    kind="DaemonSet",
                    meta=daemon_set.message.metadata,
                    desired=len(daemon_set.on),
                    updated=len(pods) - older,
                    older=older,
                )
                yield rollout.under_way_text() if daemon_set.rolls else rollout.on_delete_text()

    def _sync_node(self, now_ns: int, daemon_set: _Set, node_name: str) -> None:
        node = self._cluster.nodes.get(node_name)
        pods = list(daemon_set.on.get(node_name, {}).values())
        if node is None:
            for pod in pods:
                if not pod.node_name:
                    self._delete(now_ns, daemon_set, pod)
            return
        should_run = daemon_set.node_should_run.on(node)
        if should_run is ShouldRun.NO:
            for pod in pods:
                self._delete(now_ns, daemon_set, pod)
        elif pods:
            self._keep_one(now_ns, daemon_set, node_name, pods)
        elif should_run is ShouldRun.YES:
            self._make(now_ns, daemon_set, node_name)

    def _keep_one(
        self, now_ns: int, daemon_set: _Set, node_name: str, pods: list[PodRecord]
    ) -> None:
        """Delete pods that have ended, and all but the oldest of the others."""
        running = []
        for pod in pods:
            if pod.is_terminating:
                continue
            if not pod.is_terminal:
                running.append(pod)
            elif self._may_delete(now_ns, daemon_set, node_name):
                self._delete(now_ns, daemon_set, pod)
        if not running and daemon_set.allows_surge:
            self._make_if_needed(now_ns, daemon_set, node_name)
        running.sort(
            key=lambda pod: (
                not pod.node_name,
                time_ns(pod.message.metadata.creation_timestamp),
                pod.message.metadata.name,
            )
        )
        kept = running[:1]
        if daemon_set.allows_surge:
            new = [pod for pod in running if pod.uid not in daemon_set.outdated][:1]
            old = [pod for pod in running if pod.uid in daemon_set.outdated][:1]
            is_over = bool(old and new) and (
                not old[0].is_ready or self._is_available(now_ns, daemon_set, new[0], node_name)
            )
            kept = new if is_over else [*new, *old]
        for pod in running:
            if pod not in kept:
                self._delete(now_ns, daemon_set, pod)

    def _make_if_needed(self, now_ns: int, daemon_set: _Set, node_name: str) -> None:
        if daemon_set.node_should_run.on(self._cluster.nodes[node_name]) is ShouldRun.YES:
            self._make(now_ns, daemon_set, node_name)

    def _may_delete(self, now_ns: int, daemon_set: _Set, node_name: str) -> bool:
        """Return whether a pod that has ended may be deleted now; if not, plan a look."""
        backoff = daemon_set.backoffs.get(node_name)
        if backoff is None or now_ns - backoff.since_ns > 2 * BACKOFF_MAX_NS:
            daemon_set.backoffs[node_name] = _Backoff(BACKOFF_NS, now_ns)
            return True
        due_ns = backoff.since_ns + backoff.wait_ns
        if now_ns < due_ns:
            daemon_set.waiting[node_name] = None
            self._timeline.plan_earlier(due_ns, ActionKind.LOOK, daemon_set.message.metadata.uid)
            return False
        backoff.wait_ns = min(2 * backoff.wait_ns, BACKOFF_MAX_NS)
        backoff.since_ns = now_ns
        return True

    def _make(self, now_ns: int, daemon_set: _Set, node_name: str) -> None:
        owner = ControllerRef("DaemonSet", daemon_set.message.metadata)
        pod = self._pod_control.draft(owner, daemon_set.template)
        pod.metadata.labels[REVISION_LABEL] = daemon_set.revision
        pin(pod, node_name)
        if self._pod_control.create(now_ns, owner, pod, place=node_name):
            uid = pod.metadata.uid
            daemon_set.made_from[uid] = daemon_set.revision
            self._index(daemon_set, self._cluster.pods[uid])
        else:
            daemon_set.waiting[node_name] = None

    def _delete(self, now_ns: int, daemon_set: _Set, pod: PodRecord) -> None:
        if pod.is_terminating:
            return
        self._pod_control.delete(now_ns, pod)
        if pod.uid not in self._cluster.pods:
            node_name = target(pod.message)
            self._drop(daemon_set, pod.uid, node_name)
            daemon_set.stale[node_name] = None

    # Rolling updates

    def _roll(self, now_ns: int, daemon_set: _Set, stale: Iterable[str]) -> None:
        """Take the next step of a rolling update, after a look at the nodes that have changed."""
        if not daemon_set.nodes:
            stale = dict.fromkeys((*self._cluster.nodes, *daemon_set.on))
        for node_name in stale:
            self._look_at(now_ns, daemon_set, node_name)
        desired = sum(node.should_run for node in daemon_set.nodes.values())
        max_unavailable, max_surge = daemon_set.bounds.counts(desired)
        if max_surge:
            deleted, created = daemon_rolling_update.surged(daemon_set.nodes, max_surge)
        else:
            deleted = daemon_rolling_update.deleted_first(
                daemon_set.nodes.values(), max_unavailable
            )
            created = []
        for pod in deleted:
            self._delete(now_ns, daemon_set, pod)
        for node_name in created:
            self._make(now_ns, daemon_set, node_name)
        for node_name in (*(target(pod.message) for pod in deleted), *created):
            self._look_at(now_ns, daemon_set, node_name)

    def _look_at(self, now_ns: int, daemon_set: _Set, node_name: str) -> None:
        """Note a node's daemon pods, unless it has none and needs none."""
        pods, node = daemon_set.on.get(node_name, {}).values(), self._cluster.nodes.get(node_name)
        should_run = node is not None and daemon_set.node_should_run.on(node) is ShouldRun.YES
        if not pods and not should_run:
            daemon_set.nodes.pop(node_name, None)
            return
        daemon_set.nodes[node_name] = daemon_rolling_update.node_of(
            pods,
            should_run=should_run,
            outdated=daemon_set.outdated,
            available=dict.fromkeys(
                pod.uid for pod in pods if self._is_available(now_ns, daemon_set, pod, node_name)
            ),
        )

    def _is_available(self, now_ns: int, daemon_set: _Set, pod: PodRecord, node_name: str) -> bool:
        """Return whether a pod is available; a ready one is checked again when it will be."""
        if not pod.is_ready or not pod.is_active:
            return False
        is_available = self._pod_control.is_available(now_ns, daemon_set.message, pod)
        if not is_available:
            daemon_set.waiting[node_name] = None
        return is_available

    def _index(self, daemon_set: _Set, pod: PodRecord) -> None:
        daemon_set.on.setdefault(target(pod.message), {})[pod.uid] = pod
        if pod.uid not in daemon_set.made_from and _is_of_older_template(
            daemon_set.message, pod.message
        ):
            daemon_set.made_from[pod.uid] = ""
            daemon_set.outdated[pod.uid] = None

    def _drop(self, daemon_set: _Set, uid: str, node_name: str) -> None:
        pods = daemon_set.on.get(node_name, {})
        pods.pop(uid, None)
        daemon_set.made_from.pop(uid, None)
        daemon_set.outdated.pop(uid, None)
        if not pods:
            daemon_set.on.pop(node_name, None)


def _is_of_older_template(daemon_set: workloads_pb2.DaemonSet, pod: pod_pb2.Pod) -> bool:
    """Return whether a recorded pod has the number of another template than its recorded set."""
    number = daemon_set.metadata.annotations.get(DAEMON_SET_GENERATION)
    label = pod.metadata.labels.get(TEMPLATE_GENERATION)
    return None not in (number, label) and number != label


def tolerant(template: workloads_pb2.PodTemplateSpec) -> workloads_pb2.PodTemplateSpec:
    """Return the template with the tolerations that every daemon pod has."""
    made = workloads_pb2.PodTemplateSpec()
    made.CopyFrom(template)
    for key, taint_effect in daemon_pods.tolerated(host_network=made.spec.host_network):
        effect = taint_effect.value
        for toleration in made.spec.tolerations:
            if (toleration.key, toleration.operator, toleration.value, toleration.effect) == (
                key,
                "Exists",
                "",
                effect,
            ):
                toleration.ClearField("toleration_seconds")
                break
        else:
            made.spec.tolerations.add(key=key, operator="Exists", effect=effect)
    return made


class NodeShouldRun:
    """Decides on which nodes a template's pods should run. Raises FieldError for a bad template."""

    template: workloads_pb2.PodTemplateSpec

    def __init__(self, template: workloads_pb2.PodTemplateSpec) -> None:
        self.template = template
        self._node_name = template.spec.node_name
        self._spec = spec_from_message(template.spec, field="spec.template.spec")

    def on(self, node: node_pb2.Node) -> ShouldRun:
        """Return whether a pod should run on the node: by name, labels and taints."""
        meta = node.metadata
        if self._node_name not in ("", meta.name):
            return ShouldRun.NO
        taints = fields.taints(node.spec.taints, "spec.taints")
        return daemon_pods.should_run(
            self._spec, Node(name=meta.name, labels=meta.labels, taints=taints)
        )


def pin(pod: pod_pb2.Pod, node_name: str) -> None:
    """Replace a pod's required node affinity by one that only this node meets."""
    affinity = pod.spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution
    del required.node_selector_terms[:]
    term = required.node_selector_terms.add()
    term.match_fields.add(key="metadata.name", operator="In", values=[node_name])


def target(pod: pod_pb2.Pod) -> str:
    """Return the node that a daemon pod is on, or is pinned to; "" if none."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity
    for term in affinity.required_during_scheduling_ignored_during_execution.node_selector_terms:
        for requirement in term.match_fields:
            if (
                requirement.key == "metadata.name"
                and requirement.operator == "In"
                and len(requirement.values) == 1
            ):
                return requirement.values[0]
    return ""
