"""One comparison from beginning to end: services found or started, the recording read, judged.

How far a free run went the way of the recording: a figure to inform, not a verdict.

A free run decides anew, so that its first difference may bring about all the later ones. It shows
how well a trace and its models stand for the recorded cluster, not whether a rule is right.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import grpc

from replay.backends.processes import EmbeddedServices
from replay.backends.services import SchedulerService
from replay.backends.stream import describe
from replay.compare.comparison import RULES, Comparison, Finding, Report, changed_rules
from replay.compare.reading import read_recording
from replay.compare.recorded import Cluster, Recording
from replay.errors import BackendError, ConfigurationError, TraceError
from replay.importers.records import Issues
from replay.importers.registry import Importer, select
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as scheduler_rpc
from reprieve.trace.v1beta1.trace_pb2 import Decision, Observed, Record
from services.rpc.client import PLAIN, ClientTls

Progress = Callable[[int, int], None]
DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings:
    """What is compared; an address "" starts the scheduler as a child process."""

    paths: tuple[Path, ...]
    format_name: str | None = None
    scheduler_address: str = ""
    tls: ClientTls = PLAIN
    scheduler: scheduler_pb2.SchedulerConfig = field(default_factory=scheduler_pb2.SchedulerConfig)


def compare_recorded(settings: CompareSettings, progress: Progress) -> Report:
    """Judge every decision of a recording. Raises BackendError, and TraceError for no recording.

    `progress` is told how many decisions have been judged, and how many there are.
    """
    with contextlib.ExitStack() as stack:
        address, tls = settings.scheduler_address, settings.tls
        if not address:
            embedded = stack.enter_context(EmbeddedServices(eviction=False))
            address, tls = embedded.addresses["scheduler"], PLAIN
        judge = JudgingScheduler(address, settings.scheduler, tls)
        stack.callback(judge.close)
        recording = read_recording(
            settings.paths, format_name=settings.format_name, scheduler_names=judge.names
        )
        changed = _changed(settings, recording, address, tls)
        if changed is not None:
            stack.callback(changed.close)
        comparison = Comparison(recording, judge, changed)
        report = Report(
            rules=settings.scheduler.rules or RULES,
            kubernetes_version=recording.kubernetes_version,
            order="decisions.jsonl" if recording.has_order else "resourceVersion",
            notes=recording.notes,
        )
        report.add(_counted(comparison.findings(), len(recording.decisions), progress))
        return report


def _changed(
    settings: CompareSettings, recording: Recording, address: str, tls: ClientTls
) -> JudgingScheduler | None:
    """Return a session by the rules of the recorded version.

    None where they are in force already, or where the service does not know them.
    """
    rules = changed_rules(recording.kubernetes_version, settings.scheduler.rules)
    if not rules:
        return None
    config = scheduler_pb2.SchedulerConfig()
    config.CopyFrom(settings.scheduler)
    config.rules = rules
    try:
        return JudgingScheduler(address, config, tls)
    except ConfigurationError:
        return None


def _counted(findings: Iterator[Finding], total: int, progress: Progress) -> Iterator[Finding]:
    for count, finding in enumerate(findings, 1):
        progress(count, total)
        yield finding


class Kept(Enum):
    """STATES: each object after each change. OUTCOMES: what was decided, and not in which state."""

    STATES = "states"
    OUTCOMES = "outcomes"


_OUTCOMES = frozenset({"native", "google-2011", "google-2019", "alibaba-2017"})
_WITHOUT = {
    "simkube": "a SimKube trace holds what was applied and how long pods ran",
    "scheduler-perf": "a performance test holds what is to be created",
    "manifests": "manifests hold what is wanted",
    "openb": "OpenB's lists hold pods and nodes",
    "dlrm": "the DLRM trace holds instances without the nodes that they were on",
    "azure-packing": "Azure's packing trace holds virtual machines without their hosts",
}


def kept(paths: Sequence[Path], format_name: str | None) -> Kept:
    """Return what the format of `paths` keeps. Raises TraceError for one that keeps no outcomes."""
    importer, files = select(paths, format=format_name, issues=Issues())
    if importer.changes is not None:
        return Kept.STATES
    if importer.name in _OUTCOMES:
        return Kept.OUTCOMES
    raise TraceError(str(files[0]), _refusal(importer))


def without_outcomes(paths: Sequence[Path]) -> TraceError:
    """Return the refusal of a trace whose format may keep outcomes, and that has none."""
    problem = "holds no binding, preemption or eviction that was observed: there is nothing to"
    return TraceError(str(paths[0]), f"{problem} compare with")


def _refusal(importer: Importer) -> str:
    what = _WITHOUT.get(importer.name, "it holds no decisions")
    return (
        f"--compare-recorded: {what}, and nothing that a scheduler decided. Give a recording of "
        "a cluster: watches, an audit log, kube-scheduler-simulator's record or kwok's"
    )


class JudgingScheduler(SchedulerService):
    """A session that receives what was recorded and is asked about one pending pod at a time.

    It decides nothing by itself: its rounds are events only. Every call raises BackendError; to
    open the session raises ConfigurationError where the configuration is refused.
    """

    def __init__(
        self, address: str, config: scheduler_pb2.SchedulerConfig, tls: ClientTls = PLAIN
    ) -> None:
        super().__init__(address, config, tls)
        self._address, self._config, self._tls = address, config, tls

    def report(self, at_ns: int, events: Sequence[scheduler_pb2.Event]) -> None:
        """Send what happened until `at_ns`."""
        self.tell(scheduler_pb2.Round(at_ns=at_ns, events=events, events_only=True))
        self.answer()

    def judge(self, pod: ObjectReference, *, top_k: int | None = 1) -> scheduler_pb2.Evaluation:
        """Return the verdicts about a pending pod as things stand; `top_k` nodes, None: all."""
        named = ObjectReference(uid=pod.uid, namespace=pod.namespace, name=pod.name)
        return self._judged(scheduler_rpc.EvaluatePodRequest(pod=named, top_k=top_k))

    def judge_in(self, cluster: Cluster, at_ns: int) -> scheduler_pb2.Evaluation:
        """Return the verdicts about a pod in a cluster of its own, which leaves the session."""
        events = [scheduler_pb2.Event(at_ns=at_ns, add=each) for each in cluster.objects]
        for pod in cluster.nominated:
            events.append(scheduler_pb2.Event(at_ns=at_ns, add=KubernetesObject(pod=pod)))
        with contextlib.closing(JudgingScheduler(self._address, self._config, self._tls)) as apart:
            apart.report(at_ns, events)
            return apart._judged(scheduler_rpc.EvaluatePodRequest(new_pod=cluster.pod, top_k=1))

    def _judged(self, request: scheduler_rpc.EvaluatePodRequest) -> scheduler_pb2.Evaluation:
        try:
            return self.evaluate(request).evaluation
        except grpc.RpcError as error:
            raise BackendError(f"{self._named} answers {describe(error)}") from error


_FREE_RUN_OUTCOMES = frozenset({"scheduled", "preempted", "evicted"})


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
        record.HasField("observed") and record.observed.WhichOneof("observed") in _FREE_RUN_OUTCOMES
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
