"""Reports objects that a trace does not support: the effect on a replay, and misspelt kinds.

An object whose controller would change the cluster is named with the consequence. So is one that
Kubernetes does not know, with the kind that may have been meant. Kinds that no decision depends on,
such as ConfigMaps, are counted in one line.

Source: kubernetes v1.34 api/autoscaling/v2/types.go, HorizontalPodAutoscalerSpec; autoscaler
vertical-pod-autoscaler v1, VerticalPodAutoscalerSpec; KEDA v2 ScaledObject; Karpenter v1 NodePool;
Argo Rollouts v1alpha1 Rollout.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from replay.importers.records import Issues
from replay.kube.changes import Raw, key, meta, part, parts
from replay.kube.kinds import KINDS, RESOURCES, metadata
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from services.kube.pod import TERMINAL_PHASES

NOT_SIMULATED = "not-simulated"
MISSPELT = "misspelt-kind"
UNREAD = "unread-kind"

_CARRIED = {resource.kind: resource.api_version for resource in RESOURCES}
_OTHERS = frozenset(
    {
        *("APIService", "Binding", "CertificateSigningRequest", "ClusterRole"),
        *("ClusterRoleBinding", "ComponentStatus", "ConfigMap", "ControllerRevision"),
        *("CustomResourceDefinition", "EndpointSlice", "Endpoints", "Event"),
        *("FlowSchema", "HorizontalPodAutoscaler", "IPAddress", "Ingress", "IngressClass"),
        *("Lease", "LocalSubjectAccessReview", "MutatingAdmissionPolicy"),
        *("MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "NetworkPolicy"),
        *("PodSecurityPolicy", "PodTemplate", "PriorityLevelConfiguration"),
        *("Role", "RoleBinding", "Secret"),
        *("ServiceAccount", "ServiceCIDR", "Status", "ValidatingAdmissionPolicy"),
        *("ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration"),
        "VolumeAttributesClass",
    }
)
_GROUPS = frozenset(
    {
        *("admissionregistration", "apiextensions", "authentication", "authorization"),
        *("certificates", "coordination", "discovery", "events", "flowcontrol.apiserver"),
        *("internal.apiserver", "networking", "node", "rbac.authorization", "resource"),
        *("scheduling", "storage", "storagemigration"),
    }
)
"""Kubernetes' own groups that end in .k8s.io, without that; other groups with a dot are custom."""
_SIMILAR = 0.8
_KARPENTER = "karpenter.sh"
_CLUSTER_API = "cluster.x-k8s.io"
_POLICIES = frozenset({"kyverno.io", "constraints.gatekeeper.sh"})
_WEBHOOKS = {
    "MutatingWebhookConfiguration": "may change new pods: its webhooks are not called",
    "ValidatingWebhookConfiguration": "may refuse new pods: its webhooks are not called",
    "MutatingAdmissionPolicy": "may change new pods: it is not evaluated",
    "ValidatingAdmissionPolicy": "may refuse new pods: it is not evaluated",
}
_NO_SUCCESSOR = "no controller of it is simulated, so that none is made again when one goes"
_ENFORCED = "pod-security.kubernetes.io/enforce"


class Scaled(NamedTuple):
    """The scale of an object that an autoscaler may change: its replicas, or its pods."""

    replicas: int | None
    owned: int = 0


class LeftOut:
    """Collects the objects of a list that a trace does not carry; of one object the last counts."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str, str, str], tuple[str, Raw]] = {}
        self._counts: Counter[str] = Counter()
        self._first = ""

    def add(self, where: str, raw: Raw) -> None:
        """Add an object."""
        group = _group(raw)
        kind, namespace, name = key(raw)
        if misspelt(raw) or consequence(raw, {}):
            self._objects[group, kind, namespace, name] = (where, raw)
        else:
            self._counts[kind] += 1
            self._first = self._first or where

    def report(self, carried: Sequence[KubernetesObject], issues: Issues) -> None:
        """Add an issue for each object with a consequence, and one for all others.

        An object that owns pods has one, also where it is not in the list.
        """
        scaled = _scaled(carried) if self._objects else {}
        for where, raw in self._objects.values():
            text = misspelt(raw)
            issues.add(MISSPELT if text else NOT_SIMULATED, where, text or consequence(raw, scaled))
        noted = {(kind, namespace or "default", name) for _, kind, namespace, name in self._objects}
        for (kind, namespace, name), count in _custom_owners(carried).items():
            if (kind, namespace, name) in noted:
                continue
            text = f"{kind} {namespace}/{name} has {_many(count, 'pod')}: {_NO_SUCCESSOR}"
            issues.add(NOT_SIMULATED, f"{kind} {namespace}/{name}", text)
            self._counts -= Counter({kind: 1})
        if self._counts:
            kinds = ", ".join(f"{self._counts[kind]} {kind}" for kind in sorted(self._counts))
            text = f"no decision depends on these objects, which were left out: {kinds}"
            issues.add(UNREAD, self._first, text, self._counts.total())


def issue_of(raw: Raw) -> tuple[str, str]:
    """Return kind and message of the issue for one object of a recording."""
    text = misspelt(raw)
    if text:
        return MISSPELT, text
    text = consequence(raw, {})
    if text:
        return NOT_SIMULATED, text
    return UNREAD, f"no decision depends on a {raw.get('kind')}, which was left out"


def misspelt(raw: Raw) -> str:
    """Return what an object without a known kind may have been meant to be, "" for a known kind.

    Kinds of groups that only custom resources have are known.
    """
    version, kind = raw.get("apiVersion"), raw.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str) or not version or not kind:
        return "an object without apiVersion and kind was left out"
    group = _group(raw)
    if "." in group and group.removesuffix(".k8s.io") not in _GROUPS:
        return ""
    if kind in _CARRIED:
        return f"{version} has no {kind}, which was left out: did you mean {_CARRIED[kind]} {kind}?"
    if kind in _OTHERS:
        return ""
    close = difflib.get_close_matches(kind, [*_CARRIED, *_OTHERS], n=1, cutoff=_SIMILAR)
    if not close:
        return ""
    return f"{version} has no kind {kind}, which was left out: did you mean {close[0]}?"


def consequence(raw: Raw, scaled: dict[tuple[str, str, str], Scaled]) -> str:
    """Return what an object's controller would do, and what happens instead; "" for nothing."""
    group, kind, spec = _group(raw), key(raw)[0], part(raw, "spec")
    match kind:
        case "HorizontalPodAutoscaler":
            low, high = spec.get("minReplicas"), spec.get("maxReplicas")
            return _autoscaler(raw, scaled, _number(low, 1), _number(high, 1))
        case "ScaledObject":
            low, high = spec.get("minReplicaCount"), spec.get("maxReplicaCount")
            return _autoscaler(raw, scaled, _number(low, 0), _number(high, 100))
        case "ScaledJob":
            return f"{_named(raw)} makes Jobs as its triggers ask: no Jobs are made"
        case "VerticalPodAutoscaler":
            return _vertical(raw)
        case "NodePool" | "Provisioner" if group == _KARPENTER:
            return (
                f"{_named(raw)} adds and removes nodes: the nodes stay as they are, and a pod that "
                "fits on none of them stays pending"
            )
        case "NodeClaim" if group == _KARPENTER:
            return "Karpenter's NodeClaims are left out: nodes are neither made nor replaced"
        case "MachineDeployment" | "MachineSet" | "MachinePool" if group == _CLUSTER_API:
            nodes = _number(spec.get("replicas"), 1)
            return f"{_named(raw)} asks for {_many(nodes, 'node')}: the nodes stay as they are"
        case "ClusterQueue" | "LocalQueue":
            return f"{_named(raw)} holds Jobs back: they start at once"
        case "PodGroup":
            return f"{_named(raw)} schedules its pods together: they are scheduled one by one"
        case _ if kind in _WEBHOOKS:
            return f"{_named(raw)} {_WEBHOOKS[kind]}" if _concerns_pods(raw) else ""
        case _ if group in _POLICIES:
            return f"{_named(raw)} may change or refuse new pods: it is not evaluated"
    return _workload(raw, scaled)


def security_note(raw: Raw) -> str:
    """Return a note where a Namespace enforces a pod security standard, "" for others."""
    standard = part(meta(raw), "labels").get(_ENFORCED)
    if raw.get("kind") != "Namespace" or standard in (None, "privileged"):
        return ""
    return f"{_named(raw)} enforces the pod security standard {standard}: pods are not checked"


def _autoscaler(raw: Raw, scaled: dict[tuple[str, str, str], Scaled], low: int, high: int) -> str:
    target = part(part(raw, "spec"), "scaleTargetRef")
    kind, name = str(target.get("kind") or "Deployment"), str(target.get("name") or "")
    what = f"{_named(raw)} scales {kind} {name} between {low} and {high}"
    workload = scaled.get((kind, key(raw)[1] or "default", name))
    if workload is None or workload.replicas is None:
        return f"{what}: its replicas stay as they are"
    return f"{what}: replicas stay at {workload.replicas} unless something else sets them"


def _vertical(raw: Raw) -> str:
    spec = part(raw, "spec")
    if part(spec, "updatePolicy").get("updateMode") == "Off":
        return ""
    target = part(spec, "targetRef")
    whose = f"{target.get('kind')} {target.get('name')}"
    return f"{_named(raw)} sets the requests of {whose}'s pods: requests stay as they are"


def _workload(raw: Raw, scaled: dict[tuple[str, str, str], Scaled]) -> str:
    """Return how a replay treats a custom resource with a pod template."""
    spec = part(raw, "spec")
    kind, namespace, name = key(raw)
    has_template = bool(part(part(spec, "template"), "spec").get("containers"))
    is_rollout = kind == "Rollout" and _group(raw) == "argoproj.io"
    if not has_template and not is_rollout:
        return ""
    replicas = spec.get("replicas")
    asks = f"asks for {_many(replicas, 'replica')}" if isinstance(replicas, int) else "makes pods"
    what = f"{_named(raw)} {asks}: no controller of it is simulated"
    workload = scaled.get((kind, namespace or "default", name))
    if workload is None or not workload.owned:
        return f"{what}, no pods are made"
    return f"{what}, it stays at {_many(workload.owned, 'replica')}"


def _scaled(carried: Iterable[KubernetesObject]) -> dict[tuple[str, str, str], Scaled]:
    """Return replicas by kind, namespace and name, and those of what owners own in the trace."""
    result: dict[tuple[str, str, str], Scaled] = {}
    owned: Counter[tuple[str, str, str]] = Counter()
    for message in carried:
        content = getattr(message, message.WhichOneof("object") or "")
        meta_, kind = metadata(message), content.DESCRIPTOR.name
        spec = content.spec if "spec" in content.DESCRIPTOR.fields_by_name else None
        replicas = None
        if spec is not None and "replicas" in spec.DESCRIPTOR.fields_by_name:
            replicas = spec.replicas if spec.HasField("replicas") else 1
            result[kind, meta_.namespace, meta_.name] = Scaled(replicas)
        for owner in meta_.owner_references:
            if owner.controller:
                owned[owner.kind, meta_.namespace, owner.name] += (
                    1 if replicas is None else replicas
                )
    for who, count in owned.items():
        result[who] = Scaled(result[who].replicas if who in result else None, count)
    return result


def _custom_owners(carried: Iterable[KubernetesObject]) -> Counter[tuple[str, str, str]]:
    """Return how many pods the controllers have whose kinds a trace does not carry.

    A Node owns its mirror pods, and a kubelet is no controller.
    """
    absent: Counter[tuple[str, str, str]] = Counter()
    for message in carried:
        if not message.HasField("pod") or message.pod.status.phase in TERMINAL_PHASES:
            continue
        meta_ = message.pod.metadata
        for owner in meta_.owner_references:
            if owner.controller and owner.kind != "Node" and owner.kind not in KINDS.values():
                absent[owner.kind, meta_.namespace or "default", owner.name] += 1
    return absent


def _concerns_pods(raw: Raw) -> bool:
    """Return whether a webhook or a policy has a rule for pods."""
    rules = [rule for hook in parts(raw, "webhooks") for rule in parts(hook, "rules")]
    rules += parts(part(part(raw, "spec"), "matchConstraints"), "resourceRules")
    return any(not {"pods", "*", "*/*"}.isdisjoint(_texts(rule, "resources")) for rule in rules)


def _texts(raw: Raw, name: str) -> list[str]:
    values = raw.get(name)
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def _named(raw: Raw) -> str:
    kind, namespace, name = key(raw)
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def _group(raw: Raw) -> str:
    return str(raw.get("apiVersion") or "").rpartition("/")[0]


def _number(value: object, default: int) -> int:
    return value if type(value) is int else default


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
