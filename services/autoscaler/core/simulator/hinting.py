"""Places pods on nodes, each first where it was placed last time.

A hint is where a pod was placed; one that was not used in a whole scan is forgotten. A pod like one
that found no place in the same pass is not tried again: same controller, equal labels and spec.

Source: kubernetes/autoscaler 1.36 simulator/scheduling/hinting_simulator.go; hints.go;
similar_pods.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from services.autoscaler.core.objects import ClusterPod
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot

KINDS_PER_CONTROLLER = 10


@dataclass(slots=True)
class HintingSimulator:
    """The hints of this scan and of the last one: node by pod UID."""

    current: dict[str, str] = field(default_factory=dict)
    old: dict[str, str] = field(default_factory=dict)

    def place(
        self,
        snapshot: ClusterSnapshot,
        pods: Iterable[ClusterPod],
        *,
        is_acceptable: Callable[[str], bool] | None = None,
        stop_at_failure: bool = False,
    ) -> list[tuple[ClusterPod, str]]:
        """Place pods in their order, and return those that found a place, with their nodes.

        With `stop_at_failure`, no pod after the first that finds none is tried.
        """
        placed: list[tuple[ClusterPod, str]] = []
        refused = SimilarPods()
        for pod in pods:
            name = self._place_by_hint(snapshot, pod, is_acceptable)
            if name is None and not refused.has_one_like(pod):
                name = snapshot.schedule_anywhere(pod, is_acceptable)
                if name is None:
                    refused.add(pod)
            if name is not None:
                self.keep(pod, name)
                placed.append((pod, name))
            elif stop_at_failure:
                break
        return placed

    def hint(self, pod: ClusterPod) -> str | None:
        """Return where the pod was placed in this scan or the last one."""
        key = _key(pod)
        return self.current.get(key) or self.old.get(key)

    def keep(self, pod: ClusterPod, name: str) -> None:
        """Note where the pod was placed."""
        self.current[_key(pod)] = name

    def forget_old(self) -> None:
        """Drop the hints that were not used since the last call."""
        self.old, self.current = self.current, {}

    def _place_by_hint(
        self,
        snapshot: ClusterSnapshot,
        pod: ClusterPod,
        is_acceptable: Callable[[str], bool] | None,
    ) -> str | None:
        name = self.hint(pod)
        if name is None or name not in snapshot:
            return None
        if is_acceptable is not None and not is_acceptable(name):
            return None
        return name if snapshot.schedule(pod, name) is None else None


@dataclass(slots=True)
class SimilarPods:
    """Pods that found no place in a pass, by their controller's UID, at most ten kinds each."""

    by_controller: dict[str, list[ClusterPod]] = field(default_factory=dict)

    def has_one_like(self, pod: ClusterPod) -> bool:
        """Return whether a similar pod found no place."""
        owner = pod.controller
        kinds = () if owner is None else self.by_controller.get(owner.uid, ())
        return any(are_alike(pod, other) for other in kinds)

    def add(self, pod: ClusterPod) -> None:
        """Note a pod that found no place."""
        owner = pod.controller
        if owner is None or pod.is_daemon:
            return
        kinds = self.by_controller.setdefault(owner.uid, [])
        if len(kinds) < KINDS_PER_CONTROLLER:
            kinds.append(pod)


def are_alike(one: ClusterPod, other: ClusterPod) -> bool:
    """Return whether two pods of one controller are equal to the filters.

    Equal specs are one object. Source: utils/pod/pod_spec_semantic_equality, which also leaves out
    what an API server generates for each pod, as services/rpc/kube/spec.py does.
    """
    return one.pod.spec is other.pod.spec and one.pod.labels == other.pod.labels


def _key(pod: ClusterPod) -> str:
    return pod.pod.uid or pod.key
