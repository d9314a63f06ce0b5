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
from services.scheduler.core.outlook import Outlook
from services.scheduler.core.plugins.default_preemption import DefaultPreemption, preemptor_among
from services.scheduler.core.plugins.dynamic_resources import DynamicResources
from services.scheduler.core.preemption.preemptor import no_extenders

_FOLLOW_FROM_THE_SHAPE = (DefaultPreemption, DynamicResources)
_KEPT_MAX = 16


class Refusals:
    """What is known of pods' refusals under one profile; each shape keeps its latest ones."""

    __slots__ = ("_holds", "_preemptor", "_snapshot")

    def __init__(self, framework: Framework) -> None:
        plugins = framework.post_filters
        self._snapshot = framework.snapshot
        self._preemptor = preemptor_among(plugins)
        self._holds = all(isinstance(each, _FOLLOW_FROM_THE_SHAPE) for each in plugins)

    def unchanged(self, pod: Pod, outlook: Outlook) -> Refused | None:
        """Return the refusal of a pod if nothing has changed since the last one of its shape."""
        if outlook.refused is None or not self._follows(pod):
            return None
        version, refused = outlook.refused
        return refused if version == self._snapshot.version else None

    def alike(self, outlook: Outlook, key: Hashable) -> Refused | None:
        """Return the refusal of a pod if one of its shape had the same `key`."""
        refused = None if key is None else outlook.refusals.get(key)
        if refused is not None:
            outlook.refused = (self._snapshot.version, refused)
        return refused

    def keep(self, pod: Pod, outlook: Outlook, key: Hashable, refused: Refused) -> None:
        """Keep a refusal without a nomination."""
        if not self._follows(pod):
            return
        outlook.refused = (self._snapshot.version, refused)
        if key is not None:
            if len(outlook.refusals) >= _KEPT_MAX:
                outlook.refusals.clear()
            outlook.refusals[key] = refused

    def key(
        self, pod: Pod, diagnosis: Diagnosis, cycle: SnapshotFailedCycle, now_ns: int
    ) -> Hashable:
        """Return what a refusal's words follow from, None where more has to be looked at."""
        preemptor = self._preemptor
        if diagnosis.key is None or not self._follows(pod):
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
