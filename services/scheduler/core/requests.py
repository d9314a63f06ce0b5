"""What a pod asks of a node, in total.

Containers add up; an init container counts alone beside the sidecars started before it, and a
sidecar goes on beside everything after it. Three readings of the same pod are needed: what is
taken from the node, the same with a default for each container that asks for no CPU or memory
(so that such pods spread), and what the resource scores take a pending pod for.

Source: kubernetes v1.34 component-helpers/resource/helpers.go, PodRequests and
AggregateContainerRequests; pkg/scheduler/framework/types.go, PodInfo.CalculateResource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.kube.pod import Container, PodSpec

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"

DEFAULT_CPU_MILLI = 100
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024
_DEFAULTS: Mapping[str, int] = {CPU: DEFAULT_CPU_MILLI, MEMORY: DEFAULT_MEMORY_BYTES}
_NO_DEFAULTS: Mapping[str, int] = {}
_NATIVE = "kubernetes.io/"
_NAMED = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequests:
    """A pod's totals by resource name, "cpu" in thousandths of a core, else whole units.

    `amounts` is what the pod takes from a node. `non_zero_cpu_milli` and
    `non_zero_memory_bytes` are that with defaults for what containers leave out.
    `scored` is what LeastAllocated takes a pending pod for: defaults, and no pod-level requests.
    """

    amounts: Mapping[str, int]
    non_zero_cpu_milli: int
    non_zero_memory_bytes: int
    scored: Mapping[str, int]


def pod_requests(spec: PodSpec) -> PodRequests:
    """Return the totals of `spec`, overhead included."""
    pod_level = _pod_level(spec)
    amounts = _total(spec, _NO_DEFAULTS, pod_level)
    missing = {
        name: amount for name, amount in _DEFAULTS.items() if not pod_level or name not in amounts
    }
    non_zero = _total(spec, missing, pod_level)
    return PodRequests(
        amounts={name: amount for name, amount in amounts.items() if is_counted(name)},
        non_zero_cpu_milli=non_zero.get(CPU, 0),
        non_zero_memory_bytes=non_zero.get(MEMORY, 0),
        scored=_total(spec, _DEFAULTS, {}),
    )


def is_counted(name: str) -> bool:
    """Tell whether the scheduler keeps account of the resource."""
    return name in _NAMED or is_scalar(name)


def is_scalar(name: str) -> bool:
    """Tell whether the resource is extended, of huge pages, or an attachable volume's.

    Source: kubernetes v1.34 pkg/scheduler/util/utils.go, IsScalarResourceName.
    """
    if name.startswith(("hugepages-", "attachable-volumes-")) or _NATIVE in name:
        return True
    return "/" in name and not name.startswith("requests.")


def _total(
    spec: PodSpec, defaults: Mapping[str, int], pod_level: Mapping[str, int]
) -> dict[str, int]:
    running: dict[str, int] = {}
    for container in spec.containers:
        _add(running, _requests(container, defaults))
    _raise_to_init(running, spec.init_containers, defaults)
    running.update(pod_level)
    _add(running, spec.overhead)
    return running


def _raise_to_init(
    running: dict[str, int], init_containers: Iterable[Container], defaults: Mapping[str, int]
) -> None:
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in init_containers:
        wanted = _requests(container, defaults)
        if container.restart_policy == "Always":
            _add(running, wanted)
            _add(sidecars, wanted)
            wanted = sidecars
        else:
            wanted = dict(wanted)
            _add(wanted, sidecars)
        _raise(peak, wanted)
    _raise(running, peak)


def _requests(container: Container, defaults: Mapping[str, int]) -> Mapping[str, int]:
    return {**defaults, **container.requests} if defaults else container.requests


def _pod_level(spec: PodSpec) -> dict[str, int]:
    return {
        name: amount
        for name, amount in (spec.resources or {}).items()
        if name in {CPU, MEMORY} or name.startswith("hugepages-")
    }


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        if amount > total.get(name, 0) or name not in total:
            total[name] = amount
