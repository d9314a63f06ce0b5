"""How far a free run went the way of the recording: a figure to inform, not a verdict.

A free run decides anew, so that its first difference may bring about all the later ones. It shows
how well a trace and its models stand for the recorded cluster, not whether a rule is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from reprieve.trace.v1beta1.trace_pb2 import Decision, Observed, Record

_OUTCOMES = frozenset({"scheduled", "preempted", "evicted"})


class Landed(Enum):
    """Where a recorded binding's pod went in the free run.

    TIED: to another node, of several that were exactly equal there, so that chance may have parted
    the two. UNBOUND: it was not bound (so often).
    """

    SAME = "the recorded node"
    TIED = "another node of several equal ones"
    OTHER = "another node"
    UNBOUND = "not bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lots:
    """Pods, by name, that something befell: in both, in the recording only, in the run only."""

    both: int
    recorded_only: int
    run_only: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """A free run beside the recording. `run_only` are bindings that the recording does not have."""

    landed: Counter[Landed]
    run_only: int
    preempted: Lots
    evicted: Lots

    def to_mapping(self) -> dict[str, Any]:
        """Return the figures for programs."""
        return {
            "bindings": {
                **{each.value: self.landed[each] for each in Landed},
                "in the run only": self.run_only,
            },
            "preempted": asdict(self.preempted),
            "evicted": asdict(self.evicted),
        }


@dataclass(slots=True)
class RecordedOutcomes:
    """What a trace observed of bindings, preemptions and evictions; memory grows with pods.

    Pods are known by namespace and name, since what a controller makes has another UID in a run.
    """

    nodes: dict[str, list[str]] = field(default_factory=dict)
    preempted: set[str] = field(default_factory=set)
    evicted: set[str] = field(default_factory=set)

    def seen(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records, and note what they observe."""
        for record in records:
            if record.HasField("observed"):
                self._note(record.observed)
            yield record

    def _note(self, observed: Observed) -> None:
        key = _key(observed)
        match observed.WhichOneof("observed"):
            case "scheduled":
                self.nodes.setdefault(key, []).append(observed.scheduled.node_name)
            case "preempted":
                self.preempted.add(key)
            case "evicted":
                self.evicted.add(key)

    def agreement(self, decisions: Iterable[Decision]) -> Agreement:
        """Return how a run's decisions agree; the n-th binding of a pod is held to its n-th."""
        bound, preempted, evicted = Counter[str](), set[str](), set[str]()
        landed, run_only = Counter[Landed](), 0
        for decision in decisions:
            observed = decision.observed
            key = _key(observed)
            match observed.WhichOneof("observed"):
                case "scheduled" if not decision.refused:
                    recorded = self.nodes.get(key, ())
                    if bound[key] < len(recorded):
                        landed[_landed(observed, recorded[bound[key]])] += 1
                    else:
                        run_only += 1
                    bound[key] += 1
                case "preempted":
                    preempted.add(key)
                case "evicted":
                    evicted.add(key)
        landed[Landed.UNBOUND] = sum(map(len, self.nodes.values())) - landed.total()
        return Agreement(
            landed=landed,
            run_only=run_only,
            preempted=_lots(self.preempted, preempted),
            evicted=_lots(self.evicted, evicted),
        )


def has_outcomes(records: Iterable[Record]) -> bool:
    """Tell whether a trace observes any binding, preemption or eviction; reads up to the first."""
    return any(
        record.HasField("observed") and record.observed.WhichOneof("observed") in _OUTCOMES
        for record in records
    )


def _key(observed: Observed) -> str:
    return f"{observed.object.namespace}/{observed.object.name}"


def _landed(observed: Observed, recorded: str) -> Landed:
    if observed.scheduled.node_name == recorded:
        return Landed.SAME
    return Landed.TIED if observed.scheduled.tied_nodes > 1 else Landed.OTHER


def _lots(recorded: set[str], run: set[str]) -> Lots:
    return Lots(
        both=len(recorded & run),
        recorded_only=len(recorded - run),
        run_only=len(run - recorded),
    )
