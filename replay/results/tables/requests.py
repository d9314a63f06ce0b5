"""What a pod takes of its node, by resource.

Source: kubernetes v1.34 component-helpers/resource/helpers.go, PodRequests and
AggregateContainerRequests; of a resize in place only the spec is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.kube.pod import Container, PodSpec

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"


def requests(spec: PodSpec) -> dict[str, int]:
    """Return amounts by resource, "cpu" in thousandths of a core and one of "pods", without zeros.

    Containers and sidecars add up, an init container counts beside the sidecars started before it,
    requests of the pod as a whole replace those, and overhead comes on top.
    """
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, container.requests)
    _raise_to_init(total, spec.init_containers)
    total.update(spec.resources or {})
    _add(total, spec.overhead)
    total[PODS] = 1
    return {name: amount for name, amount in total.items() if amount}


def _raise_to_init(total: dict[str, int], init_containers: Iterable[Container]) -> None:
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in init_containers:
        if container.restart_policy == "Always":
            _add(total, container.requests)
            _add(sidecars, container.requests)
            wanted = sidecars
        else:
            wanted = dict(container.requests)
            _add(wanted, sidecars)
        _raise(peak, wanted)
    _raise(total, peak)


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = max(total.get(name, 0), amount)
