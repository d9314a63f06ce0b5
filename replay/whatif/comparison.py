"""Two runs, pod by pod and workload by workload: what differs.

Pods pair by namespace and name. Where the policies differ, a pod's node differs by design, so that
no pod counts as moved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from replay.results.summary.figures import quantile
from replay.results.workloads.verdict import WorkloadVerdict, worst_first
from replay.whatif.facts import PodFacts, RunFacts, all_figures

_SAMPLES = 5
WAITED_LONGER, WAITED_SHORTER = "waited longer", "waited shorter"
"""Of pods that were bound in both runs: the time until their bindings."""
STILL_LONGER, STILL_SHORTER = "still waiting longer", "still waiting shorter"
"""Of pods without a node when the first of both runs ends: the time until then; 0 with a node."""
_MORE_OFTEN: Mapping[str, Callable[[PodFacts], int]] = {
    "preempted": lambda pod: pod.counts.preempted,
    "evicted": lambda pod: pod.counts.evicted.total(),
    "OOM-killed": lambda pod: pod.counts.decisions["oom_killed"],
    "deleted": lambda pod: pod.deletions,
}
"""How often something happened to a pod."""
MOVED, ONLY_IN_A, ONLY_IN_B = "moved", "only in A", "only in B"
EFFECTS = (
    MOVED,
    "got a node",
    "got no node",
    *(f"{name} {change} often" for name in _MORE_OFTEN for change in ("more", "less")),
    WAITED_LONGER,
    WAITED_SHORTER,
    STILL_LONGER,
    STILL_SHORTER,
    ONLY_IN_A,
    ONLY_IN_B,
)


@dataclass(frozen=True, slots=True)
class PodEffect:
    """A difference of a pod between two runs, one of EFFECTS; by_ns: by how long it waited."""

    kind: str
    by_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureChange:
    """A figure of both runs, None if a run has no value of it."""

    name: str
    a: float | None
    b: float | None

    @property
    def is_changed(self) -> bool:
        """Return whether the runs differ in it."""
        return self.a != self.b

    @property
    def change(self) -> float | None:
        """Return B's figure less A's, None if one of them has no value."""
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def share(self) -> float | None:
        """Return the change as a share of A's figure, None also where that is 0."""
        return self.change / abs(self.a) if self.a and self.change is not None else None


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

    def note(self, effect: PodEffect, key: str) -> None:
        """Count an effect on a pod."""
        self.counts[effect.kind] = self.counts.get(effect.kind, 0) + 1
        shown = self.samples.setdefault(effect.kind, [])
        if len(shown) < _SAMPLES:
            shown.append(key)
        if effect.by_ns:
            self.totals_ns[effect.kind] = self.totals_ns.get(effect.kind, 0) + effect.by_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadChange:
    """The verdicts on a workload in both runs, None if a run does not end with it.

    text_a, text_b: the verdicts as sentences, "-" for none.
    """

    key: str
    a: WorkloadVerdict | None
    b: WorkloadVerdict | None
    text_a: str
    text_b: str

    @property
    def is_changed(self) -> bool:
        """Return whether the verdicts differ."""
        return self.text_a != self.text_b


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitStatistics:
    """The times that the pods of a class waited for nodes in one run.

    waits: of each node that a pod got, until the binding; of pods that still wait, until now, and
    of those that ended without a node, until then. still_waiting: how many of them still wait.
    Without a wait the other values are None.
    """

    waits: int
    still_waiting: int
    mean_ns: int | None
    p50_ns: int | None
    p95_ns: int | None
    max_ns: int | None

    @classmethod
    def of(cls, waits_ns: Sequence[int], still_waiting: int) -> WaitStatistics:
        """Return the statistics of some waits."""
        return cls(
            waits=len(waits_ns),
            still_waiting=still_waiting,
            mean_ns=sum(waits_ns) // len(waits_ns) if waits_ns else None,
            p50_ns=quantile(waits_ns, 0.5),
            p95_ns=quantile(waits_ns, 0.95),
            max_ns=max(waits_ns, default=None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassWaits:
    """The waits of a priority class in both runs; of pods without a class, of their priority.

    priority: the highest of the pods.
    """

    priority_class: str
    priority: int
    a: WaitStatistics
    b: WaitStatistics

    @property
    def name(self) -> str:
        """Return what the class is called in tables."""
        return self.priority_class or f"priority {self.priority:,}"

    @property
    def is_changed(self) -> bool:
        """Return whether the waits differ."""
        return self.a != self.b


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """The differences between A and B; groups with most changes first.

    waits: of each class whose pods waited in a run, the highest priority first. only_in_a,
    only_in_b: the pods that one run alone has, by namespace/name.

    workloads: those that were not whole in a run, and those with other verdicts in B, which come
    first; the worst in B first.
    """

    figures: tuple[FigureChange, ...]
    groups: tuple[PodGroup, ...]
    waits: tuple[ClassWaits, ...] = ()
    workloads: tuple[WorkloadChange, ...] = ()
    only_in_a: tuple[str, ...] = ()
    only_in_b: tuple[str, ...] = ()

    def to_mapping(self) -> dict[str, Any]:
        """Return the comparison as JSON has it."""
        return {
            "figures": {
                figure.name: {
                    "a": figure.a,
                    "b": figure.b,
                    "change": figure.change,
                    "share": figure.share,
                }
                for figure in self.figures
            },
            "waits": [dataclasses.asdict(waits) for waits in self.waits],
            "groups": [dataclasses.asdict(group) for group in self.groups],
            "workloads": [
                dataclasses.asdict(workload) | {"changed": workload.is_changed}
                for workload in self.workloads
            ],
        }


def compare(a: RunFacts, b: RunFacts, *, one_policy: bool = True) -> RunComparison:
    """Compare two runs; `one_policy` is whether the same policy decided both."""
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
        for effect in pod_effects(key, a, b, one_policy=one_policy):
            group.note(effect, key)
    return RunComparison(
        waits=tuple(_waits(a, b)),
        workloads=tuple(_workloads(a, b)),
        only_in_a=tuple(key for key in a.pods if key not in b.pods),
        only_in_b=tuple(key for key in b.pods if key not in a.pods),
        figures=tuple(_figures(all_figures(a), all_figures(b))),
        groups=tuple(
            sorted(
                groups.values(),
                key=lambda group: (
                    -sum(group.counts.values()),
                    group.priority_class,
                    group.namespace,
                ),
            )
        ),
    )


def _workloads(a: RunFacts, b: RunFacts) -> list[WorkloadChange]:
    """Return the workloads that changed or were not whole: changed ones first, then worst first."""
    worst = worst_first(workload.verdict for workload in (a.workloads | b.workloads).values())
    changes = []
    for key in (verdict.key for verdict in worst):
        one, other = (facts.workloads.get(key) for facts in (a, b))
        change = WorkloadChange(
            key=key,
            a=one.verdict if one else None,
            b=other.verdict if other else None,
            text_a=one.verdict.sentence(a.start_ns) if one else "-",
            text_b=other.verdict.sentence(b.start_ns) if other else "-",
        )
        if change.is_changed or (change.b is not None and not change.b.was_whole):
            changes.append(change)
    return sorted(changes, key=lambda change: not change.is_changed)


def _waits(a: RunFacts, b: RunFacts) -> list[ClassWaits]:
    """Return the waits by class, the highest priority first."""
    classes: dict[tuple[str, int | None], tuple[list[PodFacts], list[PodFacts]]] = {}
    for place, run in enumerate((a, b)):
        for pod in run.pods.values():
            key = pod.priority_class, None if pod.priority_class else pod.priority
            classes.setdefault(key, ([], []))[place].append(pod)
    waits = [
        ClassWaits(
            priority_class=name,
            priority=max(pod.priority for pods in sides for pod in pods),
            a=_waits_of(a, sides[0]),
            b=_waits_of(b, sides[1]),
        )
        for (name, _), sides in classes.items()
    ]
    waited = [of_class for of_class in waits if of_class.a.waits or of_class.b.waits]
    return sorted(waited, key=lambda of_class: (-of_class.priority, of_class.priority_class))


def _waits_of(run: RunFacts, pods: Iterable[PodFacts]) -> WaitStatistics:
    pods = list(pods)
    waits_ns = [wait_ns for pod in pods for wait_ns in run.waits_so_far_ns(pod)]
    return WaitStatistics.of(waits_ns, sum(map(run.still_waits, pods)))


def _figures(a: Mapping[str, float | None], b: Mapping[str, float | None]) -> list[FigureChange]:
    names = dict.fromkeys([*a, *b])
    return [FigureChange(name=name, a=a.get(name), b=b.get(name)) for name in names]


def pod_effects(
    key: str, a: RunFacts, b: RunFacts, *, one_policy: bool = True
) -> Iterator[PodEffect]:
    """Yield what happened to a pod of either run, by namespace/name, in B and not in A."""
    one, other = a.pods.get(key), b.pods.get(key)
    if one is None or other is None:
        yield PodEffect(ONLY_IN_B if one is None else ONLY_IN_A)
        return
    if one.node and other.node and one.node != other.node:
        if one_policy:
            yield PodEffect(MOVED)
    elif bool(one.node) != bool(other.node):
        yield PodEffect("got a node" if other.node else "got no node")
    for name, counts in _MORE_OFTEN.items():
        if change := counts(other) - counts(one):
            yield PodEffect(f"{name} {'more' if change > 0 else 'less'} often")
    if one.waited_ns and other.waited_ns:
        change_ns = sum(other.waited_ns) - sum(one.waited_ns)
        yield from _changed(WAITED_LONGER, WAITED_SHORTER, change_ns)
    offset_ns = min(a.length_ns, b.length_ns)
    change_ns = b.waiting_ns(other, offset_ns) - a.waiting_ns(one, offset_ns)
    yield from _changed(STILL_LONGER, STILL_SHORTER, change_ns)


def _changed(longer: str, shorter: str, change_ns: int) -> Iterator[PodEffect]:
    if change_ns:
        yield PodEffect(longer if change_ns > 0 else shorter, abs(change_ns))
