"""Two runs, pod by pod: which moved, were preempted, evicted or waited longer; and every figure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from replay.whatif.facts import PodFacts, RunFacts, all_figures

_SAMPLES = 5
WAITED_LONGER, WAITED_SHORTER = "waited longer", "waited shorter"
"""Of pods that were bound in both runs: the time until their bindings."""
STILL_LONGER, STILL_SHORTER = "still waiting longer", "still waiting shorter"
"""Of pods without a node at the end of a run: the time until then; 0 in a run with a node."""
EFFECTS = (
    "moved",
    "got a node",
    "got no node",
    "more preempted",
    "less preempted",
    "more evicted",
    "less evicted",
    WAITED_LONGER,
    WAITED_SHORTER,
    STILL_LONGER,
    STILL_SHORTER,
    "only in A",
    "only in B",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureChange:
    """A figure of both runs; `share` is the change as a share of A's, None where that is 0."""

    name: str
    a: float
    b: float

    @property
    def change(self) -> float:
        """Return B's figure less A's."""
        return self.b - self.a

    @property
    def share(self) -> float | None:
        """Return the change as a share of A's figure."""
        return self.change / abs(self.a) if self.a else None


@dataclass(slots=True, kw_only=True)
class PodGroup:
    """The pods of one priority class and namespace; `counts` and `samples` by EFFECTS.

    totals_ns: the sum over pods, of the effects that are a duration.
    """

    priority_class: str
    namespace: str
    pods: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[str]] = field(default_factory=dict)
    totals_ns: dict[str, int] = field(default_factory=dict)

    def note(self, kind: str, key: str) -> None:
        """Count a pod; the first _SAMPLES are kept by name."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        shown = self.samples.setdefault(kind, [])
        if len(shown) < _SAMPLES:
            shown.append(key)

    def note_change(self, longer: str, shorter: str, key: str, change_ns: int) -> None:
        """Count a pod as longer or shorter; a change of 0 is neither."""
        if change_ns:
            kind = longer if change_ns > 0 else shorter
            self.note(kind, key)
            self.totals_ns[kind] = self.totals_ns.get(kind, 0) + abs(change_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """The differences between A and B; groups with most changes first."""

    figures: tuple[FigureChange, ...]
    groups: tuple[PodGroup, ...]

    def to_mapping(self) -> dict[str, Any]:
        """Return the comparison as JSON has it."""
        return {
            "figures": {
                each.name: {"a": each.a, "b": each.b, "change": each.change, "share": each.share}
                for each in self.figures
            },
            "groups": [dataclasses.asdict(group) for group in self.groups],
        }


def compare(a: RunFacts, b: RunFacts) -> RunComparison:
    """Compare two runs; pods pair by namespace and name."""
    groups: dict[tuple[str, str], PodGroup] = {}
    for key in dict.fromkeys([*a.pods, *b.pods]):
        first, second = a.pods.get(key), b.pods.get(key)
        either = first or second
        assert either is not None  # noqa: S101 - the key is one of theirs
        group = groups.setdefault(
            (either.priority_class, either.namespace),
            PodGroup(priority_class=either.priority_class, namespace=either.namespace),
        )
        group.pods += 1
        if first is None or second is None:
            group.note("only in B" if first is None else "only in A", key)
        else:
            _pair(group, key, (a, first), (b, second))
    return RunComparison(
        figures=tuple(_figures(all_figures(a), all_figures(b))),
        groups=tuple(
            sorted(
                groups.values(),
                key=lambda each: (-sum(each.counts.values()), each.priority_class, each.namespace),
            )
        ),
    )


def _figures(a: Mapping[str, float], b: Mapping[str, float]) -> list[FigureChange]:
    names = dict.fromkeys([*a, *b])
    return [FigureChange(name=name, a=a.get(name, 0.0), b=b.get(name, 0.0)) for name in names]


def _pair(
    group: PodGroup, key: str, one: tuple[RunFacts, PodFacts], other: tuple[RunFacts, PodFacts]
) -> None:
    (run_a, a), (run_b, b) = one, other
    if a.node and b.node and a.node != b.node:
        group.note("moved", key)
    elif bool(a.node) != bool(b.node):
        group.note("got a node" if b.node else "got no node", key)
    if change := b.counts.preempted - a.counts.preempted:
        group.note("more preempted" if change > 0 else "less preempted", key)
    if change := b.counts.evicted.total() - a.counts.evicted.total():
        group.note("more evicted" if change > 0 else "less evicted", key)
    if a.waited_ns and b.waited_ns:
        change_ns = sum(b.waited_ns) - sum(a.waited_ns)
        group.note_change(WAITED_LONGER, WAITED_SHORTER, key, change_ns)
    change_ns = run_b.still_waiting_ns(b) - run_a.still_waiting_ns(a)
    group.note_change(STILL_LONGER, STILL_SHORTER, key, change_ns)
