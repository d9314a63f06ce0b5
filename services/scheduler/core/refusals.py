"""Refusals that hold for as long as what they follow from is the same.

Pods of one shape are refused alike, and preemption that cannot help one of them cannot help the
others. A refusal holds while nothing at all has changed; and its words are the same while as many
nodes are refused for the same reasons, and preemption fails on as many for the same. A pod that is
nominated itself, and one for which room can be made, are always decided anew.
"""

from __future__ import annotations

from collections.abc import Hashable

from services.kube.pod import Pod, PreemptionPolicy
from services.scheduler.core.decisions import Refused
from services.scheduler.core.diagnosis import Diagnosis
from services.scheduler.core.failed_cycle import SnapshotFailedCycle
from services.scheduler.core.framework import Framework
from services.scheduler.core.outlook import KeptRefusal, Outlook
from services.scheduler.core.plugins.default_preemption import DefaultPreemption, preemptor_among
from services.scheduler.core.plugins.dynamic_resources import DynamicResources
from services.scheduler.core.preemption.preemptor import no_extenders

_FOLLOW_FROM_THE_SHAPE = (DefaultPreemption, DynamicResources)


class Refusals:
    """What is known of pods' refusals under one profile; each shape's latest is kept."""

    __slots__ = ("_holds", "_preemptor", "_snapshot")

    def __init__(self, framework: Framework) -> None:
        plugins = framework.post_filters
        self._snapshot = framework.snapshot
        self._preemptor = preemptor_among(plugins)
        self._holds = all(isinstance(each, _FOLLOW_FROM_THE_SHAPE) for each in plugins)

    def unchanged(self, pod: Pod, outlook: Outlook) -> Refused | None:
        """Return the refusal of a pod if nothing has changed since the last one of its shape."""
        kept = outlook.refusal
        if kept is None or kept.version != self._snapshot.version:
            return None
        return kept.refused if self._follows(pod) else None

    def alike(self, pod: Pod, outlook: Outlook, key: Hashable) -> Refused | None:
        """Return the refusal of a pod if the last one of its shape has the same `key`."""
        kept = outlook.refusal
        if key is None or kept is None or kept.key != key or not self._follows(pod):
            return None
        self.keep(pod, outlook, key, kept.refused)
        return kept.refused

    def keep(self, pod: Pod, outlook: Outlook, key: Hashable, refused: Refused) -> None:
        """Keep a refusal without a nomination."""
        if self._follows(pod):
            outlook.refusal = KeptRefusal(self._snapshot.version, key, refused)

    def key(
        self, pod: Pod, diagnosis: Diagnosis, cycle: SnapshotFailedCycle, now_ns: int
    ) -> Hashable:
        """Return what a refusal's words follow from, None where more has to be looked at."""
        preemptor = self._preemptor
        if diagnosis.key is None:
            return None
        if preemptor is None or pod.spec.preemption_policy is PreemptionPolicy.NEVER:
            return (diagnosis.key, ())
        survey = cycle.survey(now_ns) if preemptor.extenders is no_extenders else None
        return None if survey is None or len(survey.rows) else (diagnosis.key, survey.key)

    def _follows(self, pod: Pod) -> bool:
        """Tell whether the pod's refusal follows from its shape; else it must be decided anew.

        A PostFilter plugin of another make may read more of a pod than its shape.
        """
        nominated = pod.nominated_node_name or self._snapshot.nominations.node_of(pod.uid)
        return self._holds and not nominated
