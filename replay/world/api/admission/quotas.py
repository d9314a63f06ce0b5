"""The ResourceQuota admission: what the pods of a namespace may use together.

A pod is charged to each quota that matches it when it is created, and released when it has ended or
was removed, at once: upstream's quota controller does so soon after the event. A pod that is still
terminating when twice its grace period is over is released by the quota controller's next resync
(every 5 min; here at whole multiples).

Source: kubernetes v1.34 apiserver pkg/admission/plugin/resourcequota/controller.go, CheckRequest;
pkg/quota/v1/evaluator/core/pods.go, PodUsageFunc, Constraints, podMatchesScopeFunc, QuotaV1Pod;
apiserver pkg/quota/v1/generic/evaluator.go, Matches; pkg/controller/resourcequota,
replenishment; kube-controller-manager --resource-quota-sync-period. Objects other than pods are not
counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from replay.world.api.admission.refusal import AdmissionError
from replay.world.api.admission.resources import ZERO, Amounts, amounts, is_pod_level, of_pod, plus
from reprieve.kube.v1beta1 import admission_pb2, affinity_pb2, pod_pb2
from services.kube.pod import TERMINAL_PHASES
from services.kube.quantity import Quantity
from services.kube.time import SECOND_NS
from services.rpc.kube.fields import time_ns

RESYNC_NS = 300 * SECOND_NS
_COUNT = "count/pods"
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_MUST_SPECIFY = frozenset(
    {
        "cpu",
        "memory",
        *(f"{side}.{name}" for side in ("requests", "limits") for name in _NATIVE[:2]),
    }
)
_BY_POD = frozenset(
    {
        _COUNT,
        "pods",
        *_NATIVE,
        *(f"{side}.{name}" for side in ("requests", "limits") for name in _NATIVE),
    }
)
_ONE = Quantity.from_value(1)


@dataclass(slots=True)
class _Quota:
    """A quota, its limits on pods, their usage, and the usage of each pod by UID."""

    message: admission_pb2.ResourceQuota
    hard: Amounts
    used: Amounts
    charged: dict[str, Amounts] = field(default_factory=dict)

    def charge(self, uid: str, usage: Amounts) -> bool:
        """Count a pod with its present usage; return whether less of anything is used now."""
        before = self.charged.get(uid, {})
        if usage == before:
            return False
        for name in self.hard:
            more = usage.get(name, ZERO).nano - before.get(name, ZERO).nano
            self.used[name] = plus(self.used[name], Quantity(more, usage.get(name, ZERO).format))
        if usage:
            self.charged[uid] = usage
        else:
            self.charged.pop(uid, None)
        return any(amount.nano > usage.get(name, ZERO).nano for name, amount in before.items())


class Quotas:
    """The ResourceQuotas by namespace, and the pods that are charged to them."""

    _quotas: dict[str, dict[str, _Quota]]
    _terminating: dict[str, dict[str, pod_pb2.Pod]]

    def __init__(self) -> None:
        self._quotas = {}
        self._terminating = {}

    @property
    def is_empty(self) -> bool:
        """Return whether there is no quota."""
        return not self._quotas

    def covers(self, namespace: str) -> bool:
        """Return whether a namespace has a quota."""
        return namespace in self._quotas

    def put(
        self, now_ns: int, message: admission_pb2.ResourceQuota, pods: Iterable[pod_pb2.Pod]
    ) -> list[str]:
        """Create or update a quota over existing pods; return its limits that are not on pods."""
        meta = message.metadata
        limits = amounts(message.spec.hard)
        hard = {name: limit for name, limit in sorted(limits.items()) if _is_by_pod(name)}
        quota = _Quota(message, hard, dict.fromkeys(hard, ZERO))
        self._quotas.setdefault(meta.namespace, {})[meta.name] = quota
        for pod in pods:
            if pod.metadata.namespace == meta.namespace:
                self.charge(now_ns, pod)
        return [name for name in sorted(limits) if not _is_by_pod(name)]

    def remove(self, namespace: str, name: str) -> None:
        """Delete a quota; an unknown one is accepted."""
        quotas = self._quotas.get(namespace, {})
        quotas.pop(name, None)
        if not quotas:
            self._quotas.pop(namespace, None)
            self._terminating.pop(namespace, None)

    def used(self, namespace: str, name: str) -> Amounts:
        """Return the usage of a quota's limits on pods."""
        return self._quotas[namespace][name].used

    def check(self, now_ns: int, pod: pod_pb2.Pod) -> None:
        """Check a new pod against all quotas that match it. Raises AdmissionError."""
        namespace = pod.metadata.namespace
        quotas = self._quotas.get(namespace)
        if not quotas:
            return
        self._resync(now_ns, namespace)
        matching = [quotas[name] for name in sorted(quotas) if _matches(quotas[name], pod)]
        for quota in matching:
            missing = _unspecified(quota.hard, pod.spec)
            if missing:
                raise AdmissionError(
                    f"failed quota: {quota.message.metadata.name}: must specify {missing}"
                )
        usage = usage_of(now_ns, pod)
        for quota in matching:
            exceeded = [
                name
                for name, limit in quota.hard.items()
                if usage.get(name, ZERO).nano
                and plus(quota.used[name], usage[name]).nano > limit.nano
            ]
            if exceeded:
                columns = ((usage, "requested"), (quota.used, "used"), (quota.hard, "limited"))
                amounts_ = ", ".join(
                    f"{title}: {','.join(f'{name}={column[name]}' for name in exceeded)}"
                    for column, title in columns
                )
                raise AdmissionError(
                    f"exceeded quota: {quota.message.metadata.name}, {amounts_}",
                    retry_ns=self._next_release_ns(namespace),
                )

    def charge(self, now_ns: int, pod: pod_pb2.Pod) -> bool:
        """Charge a pod with its present usage; return whether something was released."""
        meta = pod.metadata
        quotas = self._quotas.get(meta.namespace)
        if not quotas:
            return False
        if meta.HasField("deletion_timestamp") and pod.status.phase not in TERMINAL_PHASES:
            self._terminating.setdefault(meta.namespace, {})[meta.uid] = pod
        usage = usage_of(now_ns, pod)
        released = False
        for quota in quotas.values():
            if meta.uid in quota.charged or _matches(quota, pod):
                kept = {name: usage[name] for name in quota.hard if name in usage}
                released |= quota.charge(meta.uid, kept)
        return released

    def release(self, pod: pod_pb2.Pod) -> bool:
        """Release a pod that was removed; return whether it was charged."""
        meta = pod.metadata
        self._terminating.get(meta.namespace, {}).pop(meta.uid, None)
        quotas = self._quotas.get(meta.namespace, {}).values()
        released = [quota.charge(meta.uid, {}) for quota in quotas]
        return any(released)

    def _resync(self, now_ns: int, namespace: str) -> None:
        """Release the compute resources of pods that should have been removed long ago."""
        terminating = self._terminating.get(namespace, {})
        for uid in [uid for uid, pod in terminating.items() if _released_ns(pod) <= now_ns]:
            self.charge(now_ns, terminating.pop(uid))
            terminating.pop(uid, None)

    def _next_release_ns(self, namespace: str) -> int | None:
        terminating = self._terminating.get(namespace, {})
        return min(map(_released_ns, terminating.values()), default=None)


def usage_of(now_ns: int, pod: pod_pb2.Pod) -> Amounts:
    """Return the usage of a pod, by the names of resources in quotas."""
    usage = {_COUNT: _ONE}
    if pod.status.phase in TERMINAL_PHASES or (
        pod.metadata.HasField("deletion_timestamp") and _expiry_ns(pod) < now_ns
    ):
        return usage
    usage["pods"] = _ONE
    usage.update(
        _named(
            of_pod(pod.spec, "requests", overhead=True), of_pod(pod.spec, "limits", overhead=True)
        )
    )
    return usage


def _named(requests: Amounts, limits: Amounts) -> Amounts:
    """Return requests and limits by the names of resources in quotas."""
    usage: Amounts = {}
    for name, amount in requests.items():
        if name in _NATIVE or name.startswith("hugepages-"):
            usage[name] = usage[f"requests.{name}"] = amount
        else:
            usage[f"requests.{name}"] = amount
    usage.update((f"limits.{name}", limits[name]) for name in _NATIVE if name in limits)
    return usage


def _is_by_pod(name: str) -> bool:
    if name in _BY_POD or name.startswith(("hugepages-", "requests.hugepages-")):
        return True
    return name.startswith("requests.") and "/" in name


def _unspecified(hard: Mapping[str, Quantity], spec: pod_pb2.PodSpec) -> str:
    """Return the limited resources that containers leave out, with their names; "" if none."""
    if any(map(is_pod_level, (*spec.resources.requests, *spec.resources.limits))):
        return ""
    lacking: dict[str, set[str]] = {}
    for container in (*spec.containers, *spec.init_containers):
        resources = container.resources
        usage = _named(amounts(resources.requests), amounts(resources.limits))
        for name in sorted(_MUST_SPECIFY.intersection(hard).difference(usage)):
            lacking.setdefault(name, set()).add(container.name)
    return "; ".join(
        f"{name} for: {','.join(sorted(names))}" for name, names in sorted(lacking.items())
    )


# Which pods a quota counts


def _matches(quota: _Quota, pod: pod_pb2.Pod) -> bool:
    if not quota.hard:
        return False
    spec = quota.message.spec
    if not all(_is_in_scope(scope, "Exists", (), pod) for scope in spec.scopes):
        return False
    return all(
        _is_in_scope(scope.scope_name, scope.operator, scope.values, pod)
        for scope in spec.scope_selector.match_expressions
    )


def _is_in_scope(scope: str, operator: str, values: Iterable[str], pod: pod_pb2.Pod) -> bool:
    spec = pod.spec
    match scope:
        case "Terminating":
            return spec.HasField("active_deadline_seconds")
        case "NotTerminating":
            return not spec.HasField("active_deadline_seconds")
        case "BestEffort":
            return _is_best_effort(spec)
        case "NotBestEffort":
            return not _is_best_effort(spec)
        case "PriorityClass":
            return _is_of_class(spec.priority_class_name, operator, values)
        case "CrossNamespacePodAffinity":
            terms = _affinity_terms(spec.affinity)
            return any(term.namespaces or term.HasField("namespace_selector") for term in terms)
    return False


def _is_of_class(name: str, operator: str, values: Iterable[str]) -> bool:
    match operator:
        case "In":
            return bool(name) and name in values
        case "NotIn":
            return name not in values
        case "Exists":
            return bool(name)
    return not name


def _is_best_effort(spec: pod_pb2.PodSpec) -> bool:
    """Return whether nothing requests or limits CPU or memory.

    Source: kubernetes v1.34 pkg/apis/core/v1/helper/qos/qos.go, ComputePodQOS.
    """
    holders = (spec.resources, *(container.resources for container in spec.containers))
    holders += tuple(container.resources for container in spec.init_containers)
    return not any(
        amount.nano
        for resources in holders
        for side in (resources.requests, resources.limits)
        for name, amount in amounts(side).items()
        if name in {"cpu", "memory"}
    )


def _affinity_terms(affinity: affinity_pb2.Affinity) -> Iterator[affinity_pb2.PodAffinityTerm]:
    for terms in (affinity.pod_affinity, affinity.pod_anti_affinity):
        yield from terms.required_during_scheduling_ignored_during_execution
        for weighted in terms.preferred_during_scheduling_ignored_during_execution:
            yield weighted.pod_affinity_term


def _expiry_ns(pod: pod_pb2.Pod) -> int:
    """Return when a terminating pod stops counting: its grace period after its deadline."""
    meta = pod.metadata
    return time_ns(meta.deletion_timestamp) + meta.deletion_grace_period_seconds * SECOND_NS


def _released_ns(pod: pod_pb2.Pod) -> int:
    return (_expiry_ns(pod) // RESYNC_NS + 1) * RESYNC_NS
