"""The decision of one scheduling cycle, with the state that undoing it restores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from services.framework.preemption.outcome import Nomination
from services.framework.runtime.diagnosis import Unschedulable
from services.framework.snapshot.nominations import NominatedPlace
from services.kube.devices import ClaimChanges
from services.kube.pod import Pod
from services.kube.value import value
from services.scheduler.core.queueing.steps import Head, QueueStep

NOT_MEASURED: Mapping[str, int] = MappingProxyType({})


class Stage(Enum):
    """The part of a decision that the simulation refused to carry out."""

    BIND = "bind"
    NOMINATE = "nominate"
    DELETE_VICTIM = "delete-victim"


class Binding(NamedTuple):
    """A node to take.

    `feasible` of `evaluated` nodes fitted, and `tied` of them had the best `total`, which is None
    where the pod was not scored. Upstream's ScheduleResult.
    """

    node_name: str
    row: int
    evaluated: int
    feasible: int
    tied: int = 1
    total: int | None = None


@value(kw_only=True)
class Failed:
    """An attempt that ended in an error; `message` names the plugin and the error.

    `nominated_node_name` is what to write to the status: "" clears it, None leaves it alone.
    """

    message: str
    nominated_node_name: str | None = ""


class MayWait(Enum):
    """The events that the simulation may delay to a later round; a value includes those before it.

    NOTHING: every event is sent at once. STATUS: what the world carried out, statuses that change
    without ending a pod, and disruption budgets. ALL: everything but pods to be scheduled, since no
    pod is pending.
    """

    NOTHING = 0
    STATUS = 1
    ALL = 2


@dataclass(frozen=True, slots=True)
class Skipped:
    """The pod needs no scheduling any more: it is being deleted, gone or assigned."""


@dataclass(frozen=True, slots=True)
class HeldAtPermit:
    """The pod waits for Permit plugins, assumed on the node of `binding`; no outcome follows yet.

    What becomes of it is a decision of its own, with the same head.
    """

    binding: Binding


Verdict = Binding | Unschedulable | Failed | Skipped | HeldAtPermit


@value(kw_only=True)
class Decision:
    """A verdict with the steps that the queue receives for it.

    Victims, and nominations of pods of lower priority, are cleared by the simulation
    (`replay/world/loop/outcomes.py`) and come back as events; there are no steps for them.

    `nominated_before` and `choice_mark` restore the nomination and the host choice on undo.
    `phases_ns` is what a stopwatch measured, by extension point. `warnings` are failures that were
    ignored. `claims` is what a binding changes of claims for devices, None where nothing.
    """

    head: Head
    pod: Pod | None
    verdict: Verdict
    steps: tuple[QueueStep, ...]
    nominated_before: NominatedPlace | None = None
    choice_mark: int = 0
    phases_ns: Mapping[str, int] = field(default_factory=lambda: NOT_MEASURED)
    warnings: tuple[str, ...] = ()
    claims: ClaimChanges | None = None

    @property
    def attempted_pod(self) -> Pod:
        """Return the pod of a decision whose attempt had one."""
        assert self.pod is not None
        return self.pod

    @property
    def awaits_answer(self) -> bool:
        """Return whether the simulation may refuse to carry out the decision."""
        return isinstance(self.verdict, Binding) or self.nomination is not None

    @property
    def nomination(self) -> Nomination | None:
        """Return the nomination of an unschedulable pod; None if preemption did not help."""
        return self.verdict.nomination if isinstance(self.verdict, Unschedulable) else None
