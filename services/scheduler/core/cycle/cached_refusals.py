"""Refusals of equivalent pods, kept for as long as what they follow from is the same."""

from __future__ import annotations

from collections.abc import Hashable

from services.framework.preemption.preemptor import no_extenders
from services.framework.runtime.diagnosis import Diagnosis, Refused
from services.framework.runtime.framework import Framework
from services.framework.runtime.verdicts import CachedAttempt
from services.kube.pod import Pod, PreemptionPolicy
from services.scheduler.core.cycle.failed_cycle import SnapshotFailedCycle

_KEPT_MAX = 16


class CachedRefusals:
    """Refusals under one profile, for as long as what they follow from is the same.

    Equivalent pods are refused for the same reasons, and preemption that cannot help one of them
    cannot help the others. A refusal holds while nothing at all has changed. Its message is the
    same while equally many nodes are refused for the same reasons, and preemption fails on equally
    many for the same. A pod that is nominated itself, and one for which room can be made, are
    always decided again. Each equivalence class keeps its latest refusals.
    """

    __slots__ = ("_holds", "_preemptor", "_snapshot")

    def __init__(self, framework: Framework) -> None:
        plugins = framework.post_filters
        self._snapshot = framework.snapshot
        self._preemptor = framework.preemptor
        self._holds = all(plugin.follows_from_class for plugin in plugins)

    def unchanged(self, pod: Pod, cached: CachedAttempt) -> Refused | None:
        """Return the last refusal of an equivalent pod if nothing has changed since."""
        if cached.refused is None or not self._follows(pod):
            return None
        version, refused = cached.refused
        return refused if version == self._snapshot.version else None

    def alike(self, cached: CachedAttempt, key: Hashable) -> Refused | None:
        """Return the refusal of an equivalent pod that had the same `key`."""
        refused = None if key is None else cached.refusals.get(key)
        if refused is not None:
            cached.refused = (self._snapshot.version, refused)
        return refused

    def keep(self, pod: Pod, cached: CachedAttempt, key: Hashable, refused: Refused) -> None:
        """Keep a refusal without a nomination."""
        if not self._follows(pod):
            return
        cached.refused = (self._snapshot.version, refused)
        if key is not None:
            if len(cached.refusals) >= _KEPT_MAX:
                cached.refusals.clear()
            cached.refusals[key] = refused

    def key(
        self, pod: Pod, diagnosis: Diagnosis, cycle: SnapshotFailedCycle, now_ns: int
    ) -> Hashable:
        """Return what a refusal's message follows from, None where that is more than this."""
        preemptor = self._preemptor
        if diagnosis.key is None or not self._follows(pod):
            return None
        if preemptor is None or pod.spec.preemption_policy is PreemptionPolicy.NEVER:
            return (diagnosis.key, ())
        batch = cycle.batch_dry_run(now_ns) if preemptor.extenders is no_extenders else None
        return None if batch is None or len(batch.rows) else (diagnosis.key, batch.key)

    def _follows(self, pod: Pod) -> bool:
        """Return whether the pod's refusal follows from its class; else it is decided again.

        A user's PostFilter plugin may read more of a pod than what makes it equivalent.
        """
        nominated = pod.nominated_node_name or self._snapshot.nominations.node_of(pod.uid)
        return self._holds and not nominated
