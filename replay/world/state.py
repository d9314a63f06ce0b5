"""The state that all parts of a replayed cluster share: objects, planned actions, log and models.

The controllers, the kubelets and the replay's loop of one run are made with one WorldState. None of
them keeps a copy of what is in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from replay.world.api.admission.chain import Admission
from replay.world.api.cluster import Cluster
from replay.world.journal import Journal
from replay.world.models import Models
from replay.world.part import Part
from replay.world.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldState:
    """One run's API objects, admission, planned actions, decision log and models."""

    journal: Journal
    models: Models = field(default_factory=Models)
    cluster: Cluster = field(default_factory=Cluster)
    admission: Admission = field(default_factory=Admission)
    timeline: Timeline = field(default_factory=Timeline)


class WorldPart(Part):
    """A part that works on what all parts share."""

    def __init__(self, state: WorldState) -> None:
        super().__init__()
        self._cluster = state.cluster
        self._timeline = state.timeline
        self._journal = state.journal
        self._admission = state.admission
        self._models = state.models
