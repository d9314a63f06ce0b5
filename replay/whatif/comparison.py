"""Two runs, pod by pod: who moved, was preempted, evicted or waited longer; and every figure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from replay.whatif.facts import PodFacts, RunFacts
from replay.whatif.figures import all_figures

_SAMPLES = 5
WAITED_LONGER, WAITED_SHORTER = "waited longer", "waited shorter"
"""Of pods that were bound in both runs: until their bindings."""
STILL_LONGER, STILL_SHORTER = "still waiting longer", "still waiting shorter"
"""Of pods that have no node at the end of a run: until then, 0 in a run where they have one."""
KINDS = (
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
        """Return by how much B's is larger."""
        return self.b - self.a

    @property
    def share(self) -> float | None:
        """Return the change as a share of A's figure."""
        return self.change / abs(self.a) if self.a else None


@dataclass(slots=True, kw_only=True)
class Group:
    """The pods of one priority class and namespace; `counts` and `samples` by KINDS.

    totals_ns: by how much in all, of the kinds that are a length of time.
    """

    priority_class: str
    namespace: str
    pods: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[str]] = field(default_factory=dict)
    totals_ns: dict[str, int] = field(default_factory=dict)

    def note(self, kind: str, key: str) -> None:
        """Count a pod."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        shown = self.samples.setdefault(kind, [])
        if len(shown) < _SAMPLES:
            shown.append(key)

    def note_change(self, longer: str, shorter: str, key: str, change_ns: int) -> None:
        """Count a pod under the kind that a change of a length of time is of; 0 is of neither."""
        if change_ns:
            kind = longer if change_ns > 0 else shorter
            self.note(kind, key)
            self.totals_ns[kind] = self.totals_ns.get(kind, 0) + abs(change_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What B came to beside A; groups with a change first, the larger first."""

    figures: tuple[FigureChange, ...]
    groups: tuple[Group, ...]

    def to_mapping(self) -> dict[str, Any]:
        """Return what JSON holds."""
        return {
            "figures": {
                each.name: {"a": each.a, "b": each.b, "change": each.change, "share": each.share}
                for each in self.figures
            },
            "groups": [dataclasses.asdict(group) for group in self.groups],
        }


def compare(a: RunFacts, b: RunFacts) -> Comparison:
    """Compare two runs; pods pair by namespace and name."""
    groups: dict[tuple[str, str], Group] = {}
    for key in dict.fromkeys([*a.pods, *b.pods]):
        first, second = a.pods.get(key), b.pods.get(key)
        known = first or second
        assert known is not None  # noqa: S101 - the key is one of theirs
        group = groups.setdefault(
            (known.priority_class, known.namespace),
            Group(priority_class=known.priority_class, namespace=known.namespace),
        )
        group.pods += 1
        if first is None or second is None:
            group.note("only in B" if first is None else "only in A", key)
        else:
            _pair(group, key, (a, first), (b, second))
    return Comparison(
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
    group: Group, key: str, one: tuple[RunFacts, PodFacts], other: tuple[RunFacts, PodFacts]
) -> None:
    (run_a, a), (run_b, b) = one, other
    if a.node and b.node and a.node != b.node:
        group.note("moved", key)
    elif bool(a.node) != bool(b.node):
        group.note("got a node" if b.node else "got no node", key)
    if a.preempted != b.preempted:
        group.note("more preempted" if b.preempted > a.preempted else "less preempted", key)
    if a.evicted.total() != b.evicted.total():
        more = b.evicted.total() > a.evicted.total()
        group.note("more evicted" if more else "less evicted", key)
    if a.waited_ns and b.waited_ns:
        change_ns = sum(b.waited_ns) - sum(a.waited_ns)
        group.note_change(WAITED_LONGER, WAITED_SHORTER, key, change_ns)
    change_ns = run_b.still_waiting_ns(b) - run_a.still_waiting_ns(a)
    group.note_change(STILL_LONGER, STILL_SHORTER, key, change_ns)
