"""Two runs, pod by pod: who moved, was preempted, evicted or waited longer; and every figure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from replay.whatif.facts import PodFacts, RunFacts
from replay.whatif.figures import all_figures

_SAMPLES = 5
KINDS = (
    "moved",
    "got a node",
    "lost its node",
    "more preempted",
    "less preempted",
    "more evicted",
    "less evicted",
    "waited longer",
    "waited shorter",
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

    longer_ns and shorter_ns: by how much they waited longer, and shorter, in all.
    """

    priority_class: str
    namespace: str
    pods: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[str]] = field(default_factory=dict)
    longer_ns: int = 0
    shorter_ns: int = 0

    def note(self, kind: str, key: str) -> None:
        """Count a pod."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        shown = self.samples.setdefault(kind, [])
        if len(shown) < _SAMPLES:
            shown.append(key)


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
        group.note("got a node" if b.node else "lost its node", key)
    if a.preempted != b.preempted:
        group.note("more preempted" if b.preempted > a.preempted else "less preempted", key)
    if a.evicted.total() != b.evicted.total():
        more = b.evicted.total() > a.evicted.total()
        group.note("more evicted" if more else "less evicted", key)
    longer_ns = run_b.wait_ns(b) - run_a.wait_ns(a)
    if longer_ns > 0:
        group.note("waited longer", key)
        group.longer_ns += longer_ns
    elif longer_ns < 0:
        group.note("waited shorter", key)
        group.shorter_ns -= longer_ns
