"""The world's models: what a replay assumes where a trace does not say.

Each has a name, a default and a source; a recorded value always wins over a model.
"""

from __future__ import annotations

from dataclasses import dataclass

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """What a replay assumes, in ns.

    start_delay_ns: from bound to Running. Default 0: images are there and start at once.
    shutdown_ns: from the request to stop to the end of a pod's containers, bounded by the grace
        period. Default None: the whole grace period, as for a container that ignores SIGTERM.
    eviction: whether node-pressure eviction is simulated. Default True.
    recorded_budget_status: take a recorded PodDisruptionBudget status in place of the disruption
        controller's. Default False.
    """

    start_delay_ns: int = 0
    shutdown_ns: int | None = None
    eviction: bool = True
    recorded_budget_status: bool = False


DEFAULT_GRACE_S = 30
"""terminationGracePeriodSeconds of a pod that names none.

Source: kubernetes v1.34 pkg/apis/core/v1/defaults.go, SetDefaults_PodSpec.
"""
