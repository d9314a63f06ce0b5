"""Pod affinity and anti-affinity: which pods a pod wants near, and which away.

Source: kubernetes v1.34 api/core/v1/types.go, PodAffinity, PodAntiAffinity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from services.kube.selector import LabelSelector, Operator, Requirement


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAffinityTerm:
    """Pods by label and namespace, in one kind of topology domain.

    `selector` None matches no pod. Namespaces are `namespaces` united with those that
    `namespace_selector` picks (None picks none, an empty one all); the pod's own is meant where
    both are absent. The values of the pod's own labels named by `match_label_keys` must be
    shared, those of `mismatch_label_keys` not.
    """

    topology_key: str
    selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()

    def keyed(self, labels: Mapping[str, str]) -> PodAffinityTerm:
        """Return the term of a pod with `labels`, its label keys merged into the selector.

        Merging once more changes nothing that the selector matches. Keys that the pod lacks are
        passed over, and a selector that is absent stays so.
        Source: kubernetes v1.34 pkg/registry/core/pod/strategy.go,
        applyMatchLabelKeysAndMismatchLabelKeys (an API server does it on admission).
        """
        if self.selector is None or not (self.match_label_keys or self.mismatch_label_keys):
            return self
        added = [
            Requirement(key=key, operator=operator, values=(labels[key],))
            for keys, operator in (
                (self.match_label_keys, Operator.IN),
                (self.mismatch_label_keys, Operator.NOT_IN),
            )
            for key in keys
            if key in labels
        ]
        selector = LabelSelector(requirements=(*self.selector.requirements, *added))
        return replace(self, selector=selector, match_label_keys=(), mismatch_label_keys=())


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedPodAffinityTerm:
    """A preference of `weight` 1 to 100."""

    weight: int
    term: PodAffinityTerm


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAffinity:
    """The terms of a pod's affinity, or of its anti-affinity."""

    required: tuple[PodAffinityTerm, ...] = ()
    preferred: tuple[WeightedPodAffinityTerm, ...] = ()
