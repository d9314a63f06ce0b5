"""The world's models: what a replay assumes where a trace does not say.

Each has a name, a default and a source; a recorded value always wins over a model. model_table.py
reads and lists them by name.
"""

from __future__ import annotations

from dataclasses import dataclass

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """What a replay assumes, in ns unless the name says otherwise.

    start_delay_ns: from bound to Running. Default 0: images are there and start at once.
    image_pull_ns: what each image adds to that which the node does not hold yet. Default 0.
    service_time_ns: how long a pod runs whose restartPolicy is OnFailure or Never. Default None:
        until it is deleted.
    shutdown_ns: from the request to stop to the end of a pod's containers, bounded by the grace
        period. Default None: the whole grace period, as for a container that ignores SIGTERM.
    eviction: whether node-pressure eviction is simulated. Default True.
    recorded_budget_status: take a recorded PodDisruptionBudget status in place of the disruption
        controller's. Default False.
    node_grace_ns: how long a silent node is waited for before it counts as unreachable.
    toleration_s: how long a pod that says nothing of it stays on a node that is not ready or
        unreachable, s. None: the taint manager takes nobody.
    cycle_cost_ns: what a scheduling cycle takes, one after the other. Default 0.
    bind_cost_ns: what a binding takes, beside the cycles. Default 0.
    pod_gc_ns: how long the pods of a node that has gone are there. 0: they go with it.
    ended_pods_max: how many pods that have ended a cluster keeps. 0: all of them.
    """

    start_delay_ns: int = 0
    image_pull_ns: int = 0
    service_time_ns: int | None = None
    shutdown_ns: int | None = None
    eviction: bool = True
    recorded_budget_status: bool = False
    node_grace_ns: int = 40 * SECOND_NS
    toleration_s: int | None = 300
    pod_gc_ns: int = 60 * SECOND_NS
    ended_pods_max: int = 12_500
    cycle_cost_ns: int = 0
    bind_cost_ns: int = 0


DEFAULT_GRACE_S = 30
"""terminationGracePeriodSeconds of a pod that names none.

Source: kubernetes v1.34 pkg/apis/core/v1/defaults.go, SetDefaults_PodSpec.
"""
