"""What profiles ask of their pods beside what the pods say themselves, as hints read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from services.kube.pod import DEFAULT_SCHEDULER
from services.kube.selector import NodeSelector
from services.kube.spread import TopologySpreadConstraint
from services.queue.core.happening import Happening
from services.queue.core.pod import QueuedPod


@dataclass(frozen=True, slots=True, kw_only=True)
class HintProfile:
    """The arguments of one profile's plugins.

    `added_required` is what NodeAffinity asks of every pod's node, None for nothing.
    `default_constraints` are what PodTopologySpread asks of pods without constraints of their
    own; they have no selector, for it follows from a pod's services and controller.
    """

    added_required: NodeSelector | None = None
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()


HintProfiles = Mapping[str, HintProfile]
"""The profiles that say anything, by scheduler name."""

_SAYS_NOTHING = HintProfile()


class ProfiledHint(Protocol):
    """A hint function that reads the arguments of the pod's profile."""

    def __call__(self, pod: QueuedPod, happening: Happening, /, *, profiles: HintProfiles) -> bool:
        """Tell whether the event may help the pod."""
        ...


def profile_of(pod: QueuedPod, profiles: HintProfiles) -> HintProfile:
    """Return the profile that schedules `pod`; one that is not known says nothing."""
    name = DEFAULT_SCHEDULER if pod.spec is None else pod.spec.scheduler_name
    return profiles.get(name, _SAYS_NOTHING)
