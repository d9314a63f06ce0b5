"""Equivalence groups: pending pods that are scheduled alike.

Pods of one controller with equal labels and specs are one group, of which the first pod stands for
all. A controller has at most ten kinds of pods; of any further kind each pod is alone, and so
is a pod without a controller and a daemon pod. Upstream's order of groups is random; here it is
that of their first pods.

Source: kubernetes/autoscaler 1.36 core/scaleup/equivalence/groups.go,
groupPodsBySchedulingProperties.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from services.autoscaler.core.objects import ClusterPod
from services.autoscaler.core.simulator.hinting import KINDS_PER_CONTROLLER, are_alike
from services.kube.requests import pod_requests


@dataclass(frozen=True)
class EquivalenceGroup:
    """Pods that are scheduled alike."""

    pods: tuple[ClusterPod, ...]

    @property
    def sample(self) -> ClusterPod:
        """Return the pod that represents the group."""
        return self.pods[0]

    @cached_property
    def requests(self) -> Mapping[str, int]:
        """Return what each of the pods requests, by resource."""
        return pod_requests(self.sample.pod.spec)


def equivalence_groups(pods: Iterable[ClusterPod]) -> list[EquivalenceGroup]:
    """Return the pods in groups, in the order of the groups' first pods."""
    groups: list[list[ClusterPod]] = []
    by_controller: dict[str, list[list[ClusterPod]]] = {}
    for pod in pods:
        controller = pod.controller
        if controller is None or pod.is_daemon:
            groups.append([pod])
            continue
        kinds = by_controller.setdefault(controller.uid, [])
        alike = next((kind for kind in kinds if are_alike(kind[0], pod)), None)
        if alike is not None:
            alike.append(pod)
            continue
        group = [pod]
        groups.append(group)
        if len(kinds) < KINDS_PER_CONTROLLER:
            kinds.append(group)
    return [EquivalenceGroup(tuple(group)) for group in groups]
