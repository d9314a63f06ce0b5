"""Namespaces, services, controllers and disruption budgets: objects that select pods.

Source: kubernetes v1.34 api/core/v1/types.go, api/apps/v1/types.go and api/policy/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from services.kube.pod import EMPTY
from services.kube.selector import LabelSelector

WORKLOAD_KINDS = {
    "deployment": "Deployment",
    "replica_set": "ReplicaSet",
    "replication_controller": "ReplicationController",
    "stateful_set": "StatefulSet",
    "daemon_set": "DaemonSet",
    "job": "Job",
    "cron_job": "CronJob",
}
"""The kinds of objects that create pods, by their field in the contract's KubernetesObject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service; an empty `selector` selects no pod."""

    namespace: str
    name: str
    selector: Mapping[str, str] = field(default_factory=lambda: EMPTY)


class ControllerKind(Enum):
    """The controllers whose selectors default spreading reads."""

    REPLICATION_CONTROLLER = "ReplicationController"
    REPLICA_SET = "ReplicaSet"
    STATEFUL_SET = "StatefulSet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A controller of pods; `selector` None selects no pod."""

    kind: ControllerKind
    namespace: str
    name: str
    selector: LabelSelector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A namespace."""

    name: str
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)


_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class IntOrPercent:
    """A count, or a percentage of the expected pods."""

    amount: int
    percent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDisruptionBudget:
    """A budget for the pods of one namespace that `selector` matches (None matches none).

    `disruptions_allowed` is the last received status. `disrupted_pods` maps a pod's name to the
    time when its eviction was granted, ns; `disruptions_allowed` already counts such a pod.
    """

    namespace: str
    name: str
    uid: str = ""
    selector: LabelSelector | None = None
    min_available: IntOrPercent | None = None
    max_unavailable: IntOrPercent | None = None
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0
    generation: int = 0
    disrupted_pods: Mapping[str, int] = field(default_factory=lambda: _NONE)

    def guards(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether the preemptor counts a pod for the budget.

        A pod without labels does not count, and no pod counts if the selector is absent or empty.
        (For an empty selector, the disruption controller counts every pod of the namespace.)
        Source: kubernetes v1.34 plugins/defaultpreemption/default_preemption.go,
        filterPodsWithPDBViolation.
        """
        if namespace != self.namespace or not labels:
            return False
        selector = self.selector
        return selector is not None and bool(selector.requirements) and selector.matches(labels)
