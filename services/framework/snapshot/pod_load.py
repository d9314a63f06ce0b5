"""Computes the resources that a pod takes from a node, along the snapshot's columns.

Three totals of a pod are needed: what is taken from the node, the same with a default for each
container without a request for CPU or memory (so that such pods spread), and what the resource
scores count for a pending pod. All three come from services/kube/requests.py and are computed once
per spec, since the pods of a controller share theirs.

Source: kubernetes v1.34 pkg/scheduler/framework/types.go, PodInfo.CalculateResource;
plugins/noderesources/resource_allocation.go, calculatePodResourceRequest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from services.framework.columns.columns import Columns, Int64s
from services.kube.pod import ContainerResources, Pod, PodSpec
from services.kube.requests import (
    CPU,
    MEMORY,
    HostPort,
    host_ports,
    is_counted,
    is_resize_infeasible,
    pod_level_requests,
    pod_requests,
    spec_in_force,
)

DEFAULT_CPU_MILLI = 100
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024
_DEFAULTS: Mapping[str, int] = {CPU: DEFAULT_CPU_MILLI, MEMORY: DEFAULT_MEMORY_BYTES}
_SPECS_MAX = 65_536


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

    @classmethod
    def of(cls, spec: PodSpec) -> Self:
        """Return the totals of `spec`, overhead included."""
        amounts, pod_level = pod_requests(spec), pod_level_requests(spec)
        missing = {
            name: amount
            for name, amount in _DEFAULTS.items()
            if not pod_level or name not in amounts
        }
        non_zero = pod_requests(spec, missing)
        return cls(
            amounts={name: amount for name, amount in amounts.items() if is_counted(name)},
            non_zero_cpu_milli=non_zero.get(CPU, 0),
            non_zero_memory_bytes=non_zero.get(MEMORY, 0),
            scored=pod_requests(spec, _DEFAULTS, pod_level=False),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLoad:
    """One pod's weight: `amounts` int64[resources], `non_zero` int64[2] (CPU, memory), ports.

    `taken` is `amounts` once more, as (column, amount) of what is not 0. `is_affine` says that it
    has terms of pod affinity or anti-affinity.
    """

    requests: PodRequests
    amounts: Int64s
    taken: tuple[tuple[int, int], ...]
    non_zero: Int64s
    ports: tuple[HostPort, ...]
    is_affine: bool


_InForceKey = tuple[PodSpec, tuple[ContainerResources, ...], ContainerResources | None, bool]


class PodLoads:
    """Loads by spec, which is compared by identity; forgets all when it holds too many.

    `pod_level_resizes`: the requests of a pod as a whole are resized, too.
    """

    __slots__ = ("_by_spec", "_columns", "_in_force", "_pod_level_resizes")

    def __init__(self, columns: Columns, *, pod_level_resizes: bool) -> None:
        self._columns = columns
        self._pod_level_resizes = pod_level_resizes
        self._by_spec: dict[PodSpec, PodLoad] = {}
        self._in_force: dict[_InForceKey, PodSpec] = {}

    def of(self, spec: PodSpec) -> PodLoad:
        """Return the load of pods of that spec, as wide as the columns are now."""
        load = self._by_spec.get(spec)
        if load is None or len(load.amounts) != len(self._columns.resources):
            if len(self._by_spec) >= _SPECS_MAX:
                self._by_spec.clear()
            load = self._by_spec[spec] = self._compute(spec)
        return load

    def spec_in_force(self, pod: Pod) -> PodSpec:
        """Return the spec that an assigned pod counts with, one object for equal pods."""
        pod_resources = pod.pod_resources if self._pod_level_resizes else None
        if not pod.container_resources and pod_resources is None:
            return pod.spec
        key = (pod.spec, pod.container_resources, pod_resources, is_resize_infeasible(pod))
        spec = self._in_force.get(key)
        if spec is None:
            if len(self._in_force) >= _SPECS_MAX:
                self._in_force.clear()
            spec = self._in_force[key] = spec_in_force(pod, pod_level=self._pod_level_resizes)
        return spec

    def _compute(self, spec: PodSpec) -> PodLoad:
        requests = PodRequests.of(spec)
        amounts_of = requests.amounts
        indexed = dict(zip(self._columns.places(amounts_of), amounts_of.values(), strict=True))
        amounts = np.zeros(len(self._columns.resources), dtype=np.int64)
        for index, amount in indexed.items():
            amounts[index] = amount
        non_zero = (requests.non_zero_cpu_milli, requests.non_zero_memory_bytes)
        return PodLoad(
            requests=requests,
            amounts=amounts,
            taken=tuple((index, amount) for index, amount in indexed.items() if amount),
            non_zero=np.array(non_zero, dtype=np.int64),
            ports=host_ports(spec),
            is_affine=spec.has_pod_affinity,
        )
