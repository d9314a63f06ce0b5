"""Arguments of InterPodAffinity.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/config/v1/types_pluginargs.go,
pkg/scheduler/apis/config/v1/defaults.go, pkg/scheduler/apis/config/validation/
validation_pluginargs.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.config.strict import checked, within
from services.framework.arguments import Arguments

_WEIGHT_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class InterPodAffinityArgs:
    """`hard_pod_affinity_weight`, 0 to 100, is the score of another pod's required term.

    `ignore_preferred_terms_of_existing_pods` leaves other pods' terms out of the score where the
    pod itself has no preferred ones.
    """

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


@checked.register
def _(args: InterPodAffinityArgs) -> InterPodAffinityArgs:
    weight, text = args.hard_pod_affinity_weight, f"not in valid range [0-{_WEIGHT_MAX}]"
    within("hardPodAffinityWeight", weight, 0, _WEIGHT_MAX, text)
    return args


ARGUMENTS = Arguments(kind=InterPodAffinityArgs)
