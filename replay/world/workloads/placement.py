"""Where daemon pods belong: which nodes a DaemonSet admits, and how its pods are pinned to one.

Source: kubernetes v1.34 pkg/controller/daemon/daemon_controller.go, NodeShouldRunDaemonPod,
predicates; pkg/controller/daemon/util/daemonset_util.go, AddOrUpdateDaemonPodTolerations,
ReplaceDaemonSetPodNodeNameNodeAffinity, GetTargetNodeName.
"""

from __future__ import annotations

from enum import Enum

from reprieve.kube.v1alpha1 import node_pb2, pod_pb2, workloads_pb2
from services.kube.pod import PodSpec
from services.kube.taints import TaintEffect, tolerated
from services.rpc import kube_fields
from services.rpc.kube_spec import spec_from_message

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
            if (known.key, known.operator, known.value, known.effect) == (
                key,
                "Exists",
                "",
                effect,
            ):
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
        taints = kube_fields.taints(node.spec.taints, "spec.taints")
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
        for field in term.match_fields:
            if field.key == "metadata.name" and field.operator == "In" and len(field.values) == 1:
                return field.values[0]
    return ""
