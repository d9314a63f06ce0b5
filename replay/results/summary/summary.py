"""The summary of a run: one value, made from the tally, latencies, notes and spans.

Lists are ordered by count, then by name, so that equal runs have equal summaries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from replay.results.durations import DurationHistogram, Quantiles
from replay.results.summary.drains import DrainedNode
from replay.results.summary.eviction_loops import EvictionLoop
from replay.results.summary.scaling import ScaledGroup
from replay.results.summary.tally import Tally
from replay.results.workloads.verdict import WorkloadVerdict
from replay.world.controllers.autoscaling.node_groups import Autoscaling
from services.telemetry.span import Delivery

_NO_SERVICES: Mapping[str, str] = {}
_NO_WINDOWS: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCount:
    """A name and how often it occurred."""

    name: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptorCount:
    """A pod that preempted others: namespace/name, priority, victims."""

    pod: str
    priority: int
    victims: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Displacement:
    """The number of pods of one priority that pods of another preempted."""

    priority: int
    victim_priority: int
    victims: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The decisions of a run, as numbers of pods; `budget_violations` and `nominations` are events.

    failed_attempts: scheduling attempts that did not bind their pod.
    failed_reasons: the plugins' messages, each with the number of failed attempts in which it
        refused a node.
    oom_killed: kills of containers at a memory limit.
    eviction_not_judged: why evictions could not be decided; "" if they could.
    loops: eviction loops. drains: drains of nodes.
    rejected: pods that their kubelets did not admit, by the kubelet's reason.
    invalid_placements, invalid_preemptions: decisions that break rules; their causes count broken
        rules.
    refused: decisions that could not be carried out. refusals: of these, the decisions refused
        because of a mistake of the scheduler, by cause.
    refused_pods: pods that admission refused.
    """

    bound: int
    failed_attempts: int
    failed_reasons: tuple[NamedCount, ...]
    nominations: int
    preempted: int
    preemptors: tuple[PreemptorCount, ...]
    displacements: tuple[Displacement, ...]
    budget_violations: int
    evicted: tuple[NamedCount, ...]
    oom_killed: int
    eviction_not_judged: str
    loops: tuple[EvictionLoop, ...]
    drains: tuple[DrainedNode, ...]
    ended: tuple[NamedCount, ...]
    rejected: tuple[NamedCount, ...]
    invalid_placements: int
    invalid_placement_causes: tuple[NamedCount, ...]
    invalid_preemptions: int
    invalid_preemption_causes: tuple[NamedCount, ...]
    refused: int
    refusals: tuple[NamedCount, ...]
    refused_pods: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbound:
    """The pods that have no node at the end.

    messages: kube-scheduler's messages at the pods' last attempts, with the number of pods.
    reasons: the plugins' messages at these attempts, with the number of pods for which the plugin
        refused a node.
    untried: pods without an attempt: gated, another scheduler's, or created too late.
    not_created: pods that admission refused and that do not exist at the end; they are not among
        the pods without a node.
    """

    pods: int
    not_created: int
    untried: int
    messages: tuple[NamedCount, ...]
    reasons: tuple[NamedCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityWait:
    """The simulated time from when pods of one priority could be scheduled until their binding.

    still_waiting: pods without a node and without a scheduling gate at the end.
    """

    priority: int
    waited: Quantiles
    still_waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLatency:
    """Wall time of one step, and the number of pods that it handled."""

    step: str
    pods: int
    wall: Quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanCount:
    """The number of delivered spans; `choice`: "off", "all" or the percentage of sampled pods."""

    choice: str
    ended: int
    delivered: int
    target: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteCount:
    """A note of an importer, the world or a service; `kind` is a stable name."""

    kind: str
    text: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The summary of a run. Times are ns; start and end are simulated, since the Unix epoch.

    namespaces: the namespaces of the pods. services: where each service ran: its address, or how it
    was started. messages: messages to the scheduler; one may hold a window of several rounds.
    windows: the number of windows by the reason that ended them. unavailable: desired pods of
    workloads that are not ready at the end. workloads: workloads that did not have all their
    desired pods ready all the time, worst first. node_groups: groups that an autoscaler scaled.
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
    windows: tuple[NamedCount, ...]
    instants: int
    attempts: int
    queue_exchanges: int
    batches: int
    wall_ns: int
    decided: Decided
    unbound: Unbound
    waits: tuple[PriorityWait, ...]
    unavailable: int
    workloads: tuple[WorkloadVerdict, ...]
    node_groups: tuple[ScaledGroup, ...]
    latencies: tuple[StepLatency, ...]
    spans: SpanCount
    notes: tuple[NoteCount, ...]

    @property
    def simulated_ns(self) -> int:
        """Return the simulated time of the run, ns."""
        return self.end_ns - self.start_ns

    @property
    def batch_size_mean(self) -> float:
        """Return K, the mean number of attempts in an exchange that popped pods; 0 without any."""
        return self.attempts / self.batches if self.batches else 0.0

    @property
    def attempts_per_s(self) -> float:
        """Return scheduling attempts per second of wall time."""
        return self.attempts * 1e9 / self.wall_ns if self.wall_ns else 0.0

    def to_mapping(self) -> dict[str, Any]:
        """Return the summary as JSON and YAML have it."""
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
    end_ns: int = 0,
    wall_ns: int,
    notes: Mapping[tuple[str, str], int],
    eviction_not_judged: str = "",
    services: Mapping[str, str] = _NO_SERVICES,
    warnings: Iterable[str] = (),
    messages: int = 0,
    windows_ended: Mapping[str, int] = _NO_WINDOWS,
    spans: Delivery,
    span_choice: str,
    autoscaling: Autoscaling | None = None,
) -> Summary:
    """Return the summary of a run that has ended.

    end_ns: when the run ended, if that is after its last round. notes: the journal's notes by
    (kind, text). eviction_not_judged: why evictions could not be decided; "" if they could.
    services: where each service ran. warnings: the services' warnings about their configuration.
    messages: the number of messages to the scheduler. windows_ended: the number of windows of
    several rounds, by the reason that ended them. autoscaling: the scaled node groups, if any.
    span_choice: the text of a services.telemetry.span.Sampling.
    """
    noted = Counter(notes)
    noted.update(("configuration", text) for text in warnings)
    noted.update({("scheduler", text): count for text, count in tally.warnings.items()})
    workloads = tally.workloads.verdicts(max(end_ns, tally.last_ns))
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
        unbound=_unbound(tally, workloads),
        waits=_waits(tally),
        unavailable=sum(workload.unavailable for workload in workloads),
        workloads=tuple(workload for workload in workloads if not workload.was_whole),
        node_groups=tuple(tally.scaling.groups(autoscaling, max(end_ns, tally.last_ns)))
        if autoscaling is not None
        else (),
        latencies=tuple(
            StepLatency(step=name, pods=step.pods, wall=step.wall.quantiles())
            for name, step in sorted(tally.steps.items())
        ),
        spans=SpanCount(choice=span_choice, **asdict(spans)),
        notes=tuple(
            NoteCount(kind=kind, text=text, count=count)
            for (kind, text), count in sorted(
                noted.items(), key=lambda item: (item[0][0], -item[1], item[0][1])
            )
        ),
    )


def _decided(tally: Tally, eviction_not_judged: str) -> Decided:
    preemptors = sorted(tally.preempted_by.items(), key=lambda item: (-item[1], item[0]))
    return Decided(
        bound=tally.bindings,
        failed_attempts=tally.failed_attempts,
        failed_reasons=_counts(tally.failed_reasons),
        nominations=tally.nominations,
        preempted=tally.preempted,
        preemptors=tuple(
            PreemptorCount(pod=pod, priority=priority, victims=victims)
            for (pod, priority), victims in preemptors
        ),
        displacements=tuple(
            Displacement(priority=priority, victim_priority=victim, victims=victims)
            for (priority, victim), victims in sorted(
                tally.preempted_priorities.items(), reverse=True
            )
        ),
        budget_violations=tally.against_budget,
        evicted=_counts(tally.evicted),
        oom_killed=tally.decisions["oom_killed"],
        eviction_not_judged=eviction_not_judged,
        loops=tally.loops.found(),
        drains=tally.drains.rows(),
        ended=_counts(tally.ended),
        rejected=_counts(tally.rejected),
        invalid_placements=tally.decisions["invalid_placement"],
        invalid_placement_causes=_causes(tally, "invalid_placement"),
        invalid_preemptions=tally.decisions["invalid_preemption"],
        invalid_preemption_causes=_causes(tally, "invalid_preemption"),
        refused=tally.refused.total(),
        refusals=_counts(tally.refusals),
        refused_pods=tally.refused_pods,
    )


def _causes(tally: Tally, kind: str) -> tuple[NamedCount, ...]:
    causes = {cause: count for (of, cause), count in tally.invalid_causes.items() if of == kind}
    return _counts(Counter(causes))


def _unbound(tally: Tally, workloads: Sequence[WorkloadVerdict]) -> Unbound:
    waiting = tally.waiting.values()
    not_created = len(tally.refused_alone) + sum(workload.not_created for workload in workloads)
    return Unbound(
        pods=len(waiting),
        not_created=not_created,
        untried=sum(not pod.message for pod in waiting),
        messages=_counts(Counter(pod.message for pod in waiting if pod.message)),
        reasons=_counts(
            Counter(reason for pod in waiting for reason in dict.fromkeys(pod.reasons))
        ),
    )


def _waits(tally: Tally) -> tuple[PriorityWait, ...]:
    waiting = Counter(pod.priority for pod in tally.waiting.values() if not pod.gated)
    priorities = sorted({*tally.waited_ns, *waiting}, reverse=True)
    return tuple(
        PriorityWait(
            priority=priority,
            waited=tally.waited_ns.get(priority, DurationHistogram()).quantiles(),
            still_waiting=waiting[priority],
        )
        for priority in priorities
    )


def _counts(counter: Counter[str]) -> tuple[NamedCount, ...]:
    ordered = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    return tuple(NamedCount(name=name, count=count) for name, count in ordered)
