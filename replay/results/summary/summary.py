"""What a run came to, as one value: from the tally, the latencies, the notes and the spans.

Lists are ordered by how much they stand for, then by name, so that equal runs are summed up alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from replay.results.summary.histogram import Histogram, Quantiles
from replay.results.summary.tally import Loop, Tally
from services.telemetry.span import Delivery

_NO_SERVICES: Mapping[str, str] = {}
_NO_WINDOWS: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many of something there were."""

    name: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemptor:
    """A pod that preempted others: namespace/name, priority, victims."""

    pod: str
    priority: int
    victims: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Displacement:
    """How many pods of one priority were preempted by pods of another."""

    priority: int
    victim_priority: int
    victims: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What was decided, in pods; `budget_violations` and `nominations` are events.

    failed_attempts: scheduling attempts that bound nothing, of any pod.
    failed_reasons: the plugins' words in those, with the attempts that have a node refused for it.
    eviction_not_judged: why no eviction could be decided, "" where one could.
    loops: evictions of one controller's pods that go on and on.
    refused: decisions that could not be carried out.
    """

    bound: int
    failed_attempts: int
    failed_reasons: tuple[Count, ...]
    nominations: int
    preempted: int
    preemptors: tuple[Preemptor, ...]
    displacements: tuple[Displacement, ...]
    budget_violations: int
    evicted: tuple[Count, ...]
    eviction_not_judged: str
    loops: tuple[Loop, ...]
    ended: tuple[Count, ...]
    refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbound:
    """The pods that have no node at the end.

    messages: kube-scheduler's words at the last attempt, with the pods that got them.
    reasons: the plugins' words in those, with the pods that have at least one node refused for it.
    untried: pods that no attempt was made for (gated, another scheduler's, or too late).
    """

    pods: int
    untried: int
    messages: tuple[Count, ...]
    reasons: tuple[Count, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityWait:
    """Simulated time from a pod's first entry into the queue to its binding, for one priority."""

    priority: int
    waited: Quantiles
    still_waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLatency:
    """What one step took on the wall clock; `pods` went through it."""

    step: str
    pods: int
    wall: Quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanCount:
    """What became of the spans of the pods that `choice` keeps: "off", "all" or a percentage."""

    choice: str
    ended: int
    delivered: int
    target: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something that an importer or the world noted; `kind` is a stable name."""

    kind: str
    text: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All that a run came to. Times are ns; start and end since the Unix epoch, virtual.

    namespaces: those of the pods. services: where each ran, an address or how it was started.
    messages: to the scheduler; one may hold a window of several rounds. windows: how many, by what
    ended them.
    """

    run: str
    end: str
    start_ns: int
    end_ns: int
    namespaces: tuple[str, ...]
    services: Mapping[str, str]
    pods: int
    rounds: int
    messages: int
    windows: tuple[Count, ...]
    instants: int
    attempts: int
    queue_exchanges: int
    batches: int
    wall_ns: int
    decided: Decided
    unbound: Unbound
    waits: tuple[PriorityWait, ...]
    latencies: tuple[StepLatency, ...]
    spans: SpanCount
    notes: tuple[Note, ...]

    @property
    def simulated_ns(self) -> int:
        """Return how much time the replay played."""
        return self.end_ns - self.start_ns

    @property
    def batch_size_mean(self) -> float:
        """Return K: attempts for each exchange that brought pods; 0 where none are told."""
        return self.attempts / self.batches if self.batches else 0.0

    @property
    def attempts_per_s(self) -> float:
        """Return scheduling attempts for each second of the wall clock."""
        return self.attempts * 1e9 / self.wall_ns if self.wall_ns else 0.0

    def to_mapping(self) -> dict[str, Any]:
        """Return the summary for JSON and YAML."""
        derived = {
            "simulated_ns": self.simulated_ns,
            "batch_size_mean": round(self.batch_size_mean, 3),
            "attempts_per_s": round(self.attempts_per_s, 1),
        }
        return asdict(self) | derived


def summarize(
    tally: Tally,
    *,
    run: str,
    end: str,
    wall_ns: int,
    notes: Mapping[tuple[str, str], int],
    eviction_not_judged: str = "",
    services: Mapping[str, str] = _NO_SERVICES,
    warnings: Iterable[str] = (),
    messages: int = 0,
    windows_ended: Mapping[str, int] = _NO_WINDOWS,
    spans: Delivery,
    span_choice: str,
) -> Summary:
    """Sum up a run that has ended.

    `notes` are the journal's by (kind, text); `eviction_not_judged` says why no eviction could be
    decided, "" where one could; `services` says where each service ran, and `warnings` what they
    said of their configuration; `messages` went to the scheduler, and `windows_ended` counts those
    that told several rounds; `span_choice` as services.telemetry.sampling.Sampling prints it.
    """
    noted = Counter(notes)
    noted.update(("configuration", text) for text in warnings)
    noted.update({("scheduler", text): count for text, count in tally.warnings.items()})
    return Summary(
        run=run,
        end=end,
        start_ns=tally.first_ns or 0,
        end_ns=tally.last_ns,
        namespaces=tuple(sorted(tally.namespaces)),
        services=dict(services),
        pods=tally.pods,
        rounds=tally.rounds,
        messages=messages,
        windows=_counts(Counter(windows_ended)),
        instants=tally.instants,
        attempts=tally.cycles,
        queue_exchanges=tally.queue_exchanges,
        batches=tally.batches,
        wall_ns=wall_ns,
        decided=_decided(tally, eviction_not_judged),
        unbound=_unbound(tally),
        waits=_waits(tally),
        latencies=tuple(
            StepLatency(step=name, pods=step.pods, wall=step.wall.quantiles())
            for name, step in sorted(tally.steps.items())
        ),
        spans=SpanCount(choice=span_choice, **asdict(spans)),
        notes=tuple(
            Note(kind=kind, text=text, count=count)
            for (kind, text), count in sorted(
                noted.items(), key=lambda item: (item[0][0], -item[1], item[0][1])
            )
        ),
    )


def _decided(tally: Tally, eviction_not_judged: str) -> Decided:
    preemptors = sorted(tally.preempted_by.items(), key=lambda item: (-item[1], item[0]))
    return Decided(
        bound=tally.decisions["scheduled"],
        failed_attempts=tally.failed_attempts,
        failed_reasons=_counts(tally.failed_reasons),
        nominations=tally.nominated,
        preempted=tally.decisions["preempted"],
        preemptors=tuple(
            Preemptor(pod=pod, priority=priority, victims=victims)
            for (pod, priority), victims in preemptors
        ),
        displacements=tuple(
            Displacement(priority=priority, victim_priority=victim, victims=victims)
            for (priority, victim), victims in sorted(
                tally.preempted_priorities.items(), reverse=True
            )
        ),
        budget_violations=tally.budget_violations,
        evicted=_counts(tally.evicted),
        eviction_not_judged=eviction_not_judged,
        loops=tally.loops.found(),
        ended=_counts(tally.ended),
        refused=tally.refused.total(),
    )


def _unbound(tally: Tally) -> Unbound:
    waiting = tally.waiting.values()
    return Unbound(
        pods=len(waiting),
        untried=sum(not pod.message for pod in waiting),
        messages=_counts(Counter(pod.message for pod in waiting if pod.message)),
        reasons=_counts(
            Counter(reason for pod in waiting for reason in dict.fromkeys(pod.reasons))
        ),
    )


def _waits(tally: Tally) -> tuple[PriorityWait, ...]:
    waiting = Counter(pod.priority for pod in tally.waiting.values())
    priorities = sorted({*tally.waited_ns, *waiting}, reverse=True)
    return tuple(
        PriorityWait(
            priority=priority,
            waited=tally.waited_ns.get(priority, Histogram()).quantiles(),
            still_waiting=waiting[priority],
        )
        for priority in priorities
    )


def _counts(counter: Counter[str]) -> tuple[Count, ...]:
    ordered = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Count(name=name, count=count) for name, count in ordered)
