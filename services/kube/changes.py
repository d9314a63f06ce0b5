"""Determines the changes between two versions of a pod that scheduling depends on.

Source: kubernetes v1.34 pkg/scheduler/framework/events.go, PodSchedulingPropertiesChange. Changes
of requests in a pod's status are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from services.kube.pod import PodSpec
from services.kube.requests import scaled_down


class PodChange(Enum):
    """A change of a pod, by upstream's name of its action; upstream reports them in this order."""

    LABEL = "UpdatePodLabel"
    SCALE_DOWN = "UpdatePodScaleDown"
    SCHEDULING_GATES_ELIMINATED = "UpdatePodSchedulingGatesEliminated"
    TOLERATION = "UpdatePodToleration"
    GENERATED_RESOURCE_CLAIM = "UpdatePodGeneratedResourceClaim"


class PodVersion(Protocol):
    """The fields of a pod that are compared; only its labels if `spec` is None."""

    @property
    def labels(self) -> Mapping[str, str]: ...  # noqa: D102 - as in Pod
    @property
    def spec(self) -> PodSpec | None: ...  # noqa: D102 - as in Pod
    @property
    def claim_names(self) -> tuple[tuple[str, str | None], ...]: ...  # noqa: D102 - as in Pod


def pod_changes(old: PodVersion, new: PodVersion) -> tuple[PodChange, ...]:
    """Return the changes in upstream's order; empty if upstream looks for none of them.

    Tolerations are compared by their number, as upstream does: they can only be added.
    """
    changes: list[PodChange] = []
    if old.labels is not new.labels and dict(old.labels) != dict(new.labels):
        changes.append(PodChange.LABEL)
    before, after = old.spec, new.spec
    if before is not None and after is not None and before is not after:
        if scaled_down(before, after):
            changes.append(PodChange.SCALE_DOWN)
        if before.scheduling_gates and not after.scheduling_gates:
            changes.append(PodChange.SCHEDULING_GATES_ELIMINATED)
        if len(before.tolerations) != len(after.tolerations):
            changes.append(PodChange.TOLERATION)
    if old.claim_names != new.claim_names:
        changes.append(PodChange.GENERATED_RESOURCE_CLAIM)
    return tuple(changes)
