"""What a pod takes from a node, laid out along the snapshot's columns.

Computed once a spec, since a controller's pods share theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.kube.host_ports import HostPort, host_ports
from services.kube.pod import ContainerResources, Pod, PodSpec
from services.scheduler.core.columns import Columns, Int64s
from services.scheduler.core.requests import PodRequests
from services.scheduler.core.resize import is_resize_infeasible, spec_in_force

_SPECS_MAX = 65_536

Given = tuple[ContainerResources, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLoad:
    """One pod's weight: `amounts` int64[resources], `non_zero` int64[2] (CPU, memory), ports.

    `taken` is `amounts` once more, as (column, amount) of what is not 0. `is_affine` tells that it
    has terms of pod affinity or anti-affinity.
    """

    requests: PodRequests
    amounts: Int64s
    taken: tuple[tuple[int, int], ...]
    non_zero: Int64s
    ports: tuple[HostPort, ...]
    is_affine: bool


class PodLoads:
    """Loads by spec, which is compared by identity; forgets all when it holds too many."""

    __slots__ = ("_by_spec", "_columns", "_in_force")

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._by_spec: dict[PodSpec, PodLoad] = {}
        self._in_force: dict[tuple[PodSpec, Given, bool], PodSpec] = {}

    def of(self, spec: PodSpec) -> PodLoad:
        """Return the load of pods of that spec, as wide as the columns are now."""
        load = self._by_spec.get(spec)
        if load is None or len(load.amounts) != len(self._columns.resources):
            if len(self._by_spec) >= _SPECS_MAX:
                self._by_spec.clear()
            load = self._by_spec[spec] = self._compute(spec)
        return load

    def spec_in_force(self, pod: Pod) -> PodSpec:
        """Return the spec that an assigned pod counts with, one object for pods that are alike."""
        if not pod.given:
            return pod.spec
        key = (pod.spec, pod.given, is_resize_infeasible(pod))
        spec = self._in_force.get(key)
        if spec is None:
            if len(self._in_force) >= _SPECS_MAX:
                self._in_force.clear()
            spec = self._in_force[key] = spec_in_force(pod)
        return spec

    def _compute(self, spec: PodSpec) -> PodLoad:
        requests = PodRequests.of(spec)
        indexed = {self._columns.resource(name): n for name, n in requests.amounts.items()}
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
