"""Builds the template of a group's new node: the node, and the pods that it starts with.

The first good node of a group is the example: ready for more than a minute, not cordoned, not about
to be deleted. Without one, the last good example counts, then what the cloud says, and at last any
node of the group. A copy of an example is cleaned: names are made unique, and taints that come and
go are taken off.

Daemon pods and mirror pods come with the node. To the cloud's template every daemon set adds its
pod where it would run; to an example only those that it lacks, if that is asked for, or if they
would make their room.

Source: kubernetes/autoscaler 1.36 processors/nodeinfosprovider/mixed_nodeinfos_processor.go;
simulator/node_info_utils.go; utils/daemonset/daemonset.go; utils/labels/labels.go,
UpdateDeprecatedLabels; utils/taints/taints.go, SanitizeTaints. kubernetes 1.36
pkg/controller/daemon/daemon_controller.go, NewPod.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from services.autoscaler.core.cluster_state.readiness import is_ready
from services.autoscaler.core.groups import Cloud, NodeGroup
from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterNode, ClusterPod, DaemonSet
from services.autoscaler.core.options import Options
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot
from services.kube import taints
from services.kube.daemon_pods import ShouldRun, should_run, tolerations
from services.kube.node import (
    LABEL_HOSTNAME,
    LABEL_REGION,
    LABEL_REGION_BETA,
    LABEL_ZONE,
    LABEL_ZONE_BETA,
    Node,
)
from services.kube.pod import OwnerReference, Pod, PodPhase, PodSpec, PreemptionPolicy
from services.kube.time import MINUTE_NS

STABLE_NS = MINUTE_NS
TEMPLATE_NODE = "cluster-autoscaler.kubernetes.io/template-node"
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
DELETION_CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
_STARTUP_PREFIXES = (
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
)
_STATUS_PREFIX = "status-taint.cluster-autoscaler.kubernetes.io/"
_PASSING_TAINTS = {
    TO_BE_DELETED,
    DELETION_CANDIDATE,
    taints.NOT_READY,
    taints.UNREACHABLE,
    taints.UNSCHEDULABLE,
    taints.MEMORY_PRESSURE,
    taints.DISK_PRESSURE,
    taints.NETWORK_UNAVAILABLE,
    taints.PID_PRESSURE,
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.cloudprovider.kubernetes.io/shutdown",
    "cloud.google.com/impending-node-termination",
    "NodeWithImpairedVolumes",
}
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_DEPRECATED = {
    _INSTANCE_TYPE: "beta.kubernetes.io/instance-type",
    LABEL_REGION: LABEL_REGION_BETA,
    LABEL_ZONE: LABEL_ZONE_BETA,
}
_SYSTEM_NODE_CRITICAL = "system-node-critical"


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """A node, and the pods that come with it."""

    node: ClusterNode
    pods: tuple[ClusterPod, ...] = ()

    def named(self, suffix: str) -> NodeTemplate:
        """Return a copy with names of its own. Source: SanitizedNodeInfo."""
        return NodeTemplate(*_renamed(self.node, self.pods, self.node.name, suffix))


@dataclass(slots=True)
class Templates:
    """The templates of this scan by group, and the last good examples by group."""

    by_group: dict[str, NodeTemplate] = field(default_factory=dict)
    examples: dict[str, NodeTemplate] = field(default_factory=dict)
    daemon_specs: dict[str, tuple[PodSpec, PodSpec]] = field(default_factory=dict)

    def recompute(
        self,
        snapshot: ClusterSnapshot,
        nodes: Iterable[ClusterNode],
        cloud: Cloud,
        daemon_sets: list[DaemonSet],
        options: Options,
        now: Now,
    ) -> None:
        """Make the templates of a scan; `nodes` are by name and in the snapshot."""
        result: dict[str, NodeTemplate] = {}
        good: list[ClusterNode] = []
        others: list[ClusterNode] = []
        for node in nodes:
            (good if _is_good(node.node, now) else others).append(node)

        def take(node: ClusterNode) -> str | None:
            group = cloud.group_of(node.provider_id)
            if group is None or group.name in result:
                return None
            example = NodeTemplate(node, tuple(snapshot.pods_on(node.name)))
            result[group.name] = self._cleaned(
                example, group, daemon_sets, options, force_daemon_sets=options.force_ds
            )
            return group.name

        for node in good:
            name = take(node)
            if name is not None:
                self.examples[name] = result[name]
        groups = cloud.groups()
        for group in groups:
            if group.name in result:
                continue
            result[group.name] = self.examples.get(group.name) or self.of_cloud(
                group, daemon_sets, options
            )
        known = {group.name for group in groups}
        self.examples = {name: example for name, example in self.examples.items() if name in known}
        for node in others:
            take(node)
        self.by_group = result

    def of_cloud(
        self, group: NodeGroup, daemon_sets: list[DaemonSet], options: Options
    ) -> NodeTemplate:
        """Return what the cloud says of a group's nodes, with a pod of every fitting daemon set."""
        template = self._cleaned(
            NodeTemplate(group.template), group, daemon_sets, options, force_daemon_sets=True
        )
        labels = dict(template.node.node.labels)
        labels |= {old: labels[new] for new, old in _DEPRECATED.items() if new in labels}
        node = replace(template.node, node=replace(template.node.node, labels=labels))
        return NodeTemplate(node, template.pods)

    def _cleaned(
        self,
        example: NodeTemplate,
        group: NodeGroup,
        daemon_sets: list[DaemonSet],
        options: Options,
        *,
        force_daemon_sets: bool,
    ) -> NodeTemplate:
        """Source: SanitizedTemplateNodeInfoFromNodeInfo, podsExpectedOnFreshNode."""
        base = f"template-node-for-{group.name}"
        node, pods = _renamed(example.node, example.pods, base, "template")
        kept = tuple(taint for taint in node.node.taints if not is_passing(taint.key, options))
        plain = replace(
            node.node,
            taints=kept,
            unschedulable=node.node.unschedulable and not options.scale_from_unschedulable,
        )
        living = [pod for pod in pods if pod.pod.deletion_ns is None]
        expected = [pod for pod in living if pod.is_mirror or pod.is_daemon]
        owners = (pod.controller for pod in living)
        running = {owner.uid for owner in owners if owner is not None and owner.kind == "DaemonSet"}
        for daemon_set in daemon_sets:
            if daemon_set.uid in running:
                continue
            pod = self._daemon_pod(daemon_set, plain)
            if pod is not None and (force_daemon_sets or _makes_room(pod.pod.spec)):
                expected.append(pod)
        labels = {**plain.labels, TEMPLATE_NODE: "true"}
        return NodeTemplate(replace(node, node=replace(plain, labels=labels)), tuple(expected))

    def _daemon_pod(self, daemon_set: DaemonSet, node: Node) -> ClusterPod | None:
        """Return the pod that a daemon set would run on a node, None if it would not."""
        spec = self._daemon_spec(daemon_set)
        if should_run(spec, node) is not ShouldRun.YES:
            return None
        name = f"{daemon_set.name}-pod-{node.name}"
        owner = OwnerReference(
            kind="DaemonSet", name=daemon_set.name, uid=daemon_set.uid, controller=True
        )
        return ClusterPod(
            pod=Pod(
                uid=f"{daemon_set.namespace}/{name}",
                namespace=daemon_set.namespace,
                name=name,
                spec=spec,
                labels=daemon_set.labels,
                annotations=daemon_set.annotations,
                owners=(owner,),
                node_name=node.name,
                phase=PodPhase.PENDING,
            )
        )

    def _daemon_spec(self, daemon_set: DaemonSet) -> PodSpec:
        """Return a daemon set's spec with the tolerations of all daemon pods, one object each."""
        known = self.daemon_specs.get(daemon_set.key)
        if known is not None and known[0] is daemon_set.spec:
            return known[1]
        spec = daemon_set.spec
        added = tolerations(host_network=spec.host_network)
        made = replace(spec, tolerations=(*spec.tolerations, *added))
        self.daemon_specs[daemon_set.key] = spec, made
        return made


def is_passing(taint_key: str, options: Options) -> bool:
    """Return whether a taint describes a passing state of a node, and not its kind."""
    return (
        taint_key in _PASSING_TAINTS
        or is_startup_taint(taint_key, options)
        or taint_key in options.status_taints
        or taint_key.startswith(_STATUS_PREFIX)
    )


def is_startup_taint(taint_key: str, options: Options) -> bool:
    """Return whether a node with the taint has not started yet."""
    prefixes = (*_STARTUP_PREFIXES, *options.startup_taint_prefixes)
    return taint_key in options.startup_taints or taint_key.startswith(prefixes)


def _is_good(node: Node, now: Now) -> bool:
    """Return whether a node is a good example. Source: isNodeGoodTemplateCandidate."""
    if not is_ready(node) or node.unschedulable:
        return False
    if any(taint.key == TO_BE_DELETED for taint in node.taints):
        return False
    telling = {"Ready", "DiskPressure", "NetworkUnavailable"}
    changed = (
        condition.last_transition_ns or 0
        for condition in node.conditions
        if condition.type in telling
    )
    return now.is_after(max(changed, default=0) + STABLE_NS)


def _makes_room(spec: PodSpec) -> bool:
    """Return whether a daemon pod would displace others. Source: isPreemptingSystemNodeCritical."""
    return (
        spec.priority_class_name == _SYSTEM_NODE_CRITICAL
        and spec.preemption_policy is PreemptionPolicy.PREEMPT_LOWER_PRIORITY
    )


def _renamed(
    node: ClusterNode, pods: Iterable[ClusterPod], base: str, suffix: str
) -> tuple[ClusterNode, tuple[ClusterPod, ...]]:
    """Return copies of a node and its pods under names of their own."""
    name = f"{base}-{suffix}"
    labels = {**node.node.labels, LABEL_HOSTNAME: name}
    fresh = replace(node, node=replace(node.node, name=name, uid="", labels=labels))
    renamed = (
        replace(
            pod,
            pod=replace(
                pod.pod,
                name=f"{pod.pod.name}-{suffix}",
                uid=f"{pod.key}-{suffix} on {name}",
                node_name=name,
            ),
        )
        for pod in pods
    )
    return fresh, tuple(renamed)
