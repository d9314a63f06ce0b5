"""The two comparisons with a recording: of each decision, and of a free run.

The first one evaluates each recorded decision in its recorded state. The second one counts the
bindings, preemptions and evictions that a free run has in common with the recording. A free run
makes its own decisions, so that its first difference may cause all later ones: the figures show how
well a trace and its models represent the recorded cluster, not whether a rule is right.
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
from replay.compare.comparison import RULES, Comparison, ComparisonReport, Finding, changed_rules
from replay.compare.reading import read_recording
from replay.compare.recorded import ClusterView, Recording
from replay.errors import BackendError, ConfigurationError, TraceError
from replay.importers.records import Issues
from replay.importers.registry import select
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as scheduler_rpc
from reprieve.trace.v1beta1.trace_pb2 import Decision, Observed, Record
from services.rpc.access import PLAIN, ClientTls

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


def compare_recorded(settings: CompareSettings, progress: Progress) -> ComparisonReport:
    """Compare every decision of a recording. Raises BackendError and TraceError.

    `progress` is called with the number of compared decisions and their total.
    """
    with contextlib.ExitStack() as stack:
        address, tls = settings.scheduler_address, settings.tls
        if not address:
            embedded = stack.enter_context(
                EmbeddedServices(
                    eviction=False, configuration=settings.scheduler.kube_scheduler_configuration
                )
            )
            address, tls = embedded.addresses["scheduler"], PLAIN
        session = SchedulerEvaluationSession(address, settings.scheduler, tls)
        stack.callback(session.close)
        recording = read_recording(
            settings.paths, format_name=settings.format_name, scheduler_names=session.names
        )
        changed = _changed(settings, recording, address, tls)
        if changed is not None:
            stack.callback(changed.close)
        comparison = Comparison(recording, session, changed)
        report = ComparisonReport(
            rules=settings.scheduler.rules or RULES,
            kubernetes_version=recording.kubernetes_version,
            order="decisions.jsonl" if recording.has_order else "resourceVersion",
            notes=recording.notes,
        )
        report.add(_counted(comparison.findings(), len(recording.decisions), progress))
        return report


def _changed(
    settings: CompareSettings, recording: Recording, address: str, tls: ClientTls
) -> SchedulerEvaluationSession | None:
    """Return a session with the rules of the recorded version.

    None where these are the settings' rules, or where the service does not have them.
    """
    rules = changed_rules(recording.kubernetes_version, settings.scheduler.rules)
    if not rules:
        return None
    config = scheduler_pb2.SchedulerConfig()
    config.CopyFrom(settings.scheduler)
    config.rules = rules
    try:
        return SchedulerEvaluationSession(address, config, tls)
    except ConfigurationError:
        return None


def _counted(findings: Iterator[Finding], total: int, progress: Progress) -> Iterator[Finding]:
    for count, finding in enumerate(findings, 1):
        progress(count, total)
        yield finding


class RecordedContent(Enum):
    """STATES: each object after each change. OUTCOMES: decisions without the cluster's state."""

    STATES = "states"
    OUTCOMES = "outcomes"


def recorded_content(paths: Sequence[Path], format_name: str | None) -> RecordedContent:
    """Return what the format of `paths` records. Raises TraceError for one without outcomes."""
    importer, files = select(paths, format=format_name, issues=Issues())
    if importer.open_recording is not None:
        return RecordedContent.STATES
    if not importer.no_outcomes:
        return RecordedContent.OUTCOMES
    problem = f"--compare-recorded: {importer.no_outcomes}, but no scheduler's decisions"
    cure = "watches, an audit log, or a record of kube-scheduler-simulator or kwok"
    raise TraceError(str(files[0]), f"{problem}. Use a recording of a cluster: {cure}")


def without_outcomes(paths: Sequence[Path]) -> TraceError:
    """Return the error for a trace without outcomes, whose format may have them."""
    problem = "has no observed binding, preemption or eviction to compare with"
    return TraceError(str(paths[0]), problem)


class SchedulerEvaluationSession(SchedulerService):
    """A session that receives the recorded state and evaluates one pending pod at a time.

    It makes no decisions: its rounds are events only. Every call raises BackendError; opening the
    session raises ConfigurationError where the configuration is refused.
    """

    def __init__(
        self, address: str, config: scheduler_pb2.SchedulerConfig, tls: ClientTls = PLAIN
    ) -> None:
        super().__init__(address, config, tls)
        self._address, self._config, self._tls = address, config, tls

    def report(self, at_ns: int, events: Sequence[scheduler_pb2.Event]) -> None:
        """Send the events up to `at_ns`."""
        self.send_round(scheduler_pb2.Round(at_ns=at_ns, events=events, events_only=True))
        self.receive_outcomes()

    def evaluate_pod(
        self, pod: ObjectReference, *, top_k: int | None = 1
    ) -> scheduler_pb2.Evaluation:
        """Return the evaluation of a pending pod in the current state; `top_k` None: all nodes."""
        named = ObjectReference(uid=pod.uid, namespace=pod.namespace, name=pod.name)
        return self._evaluation(scheduler_rpc.EvaluatePodRequest(pod=named, top_k=top_k))

    def evaluate_in(self, cluster: ClusterView, at_ns: int) -> scheduler_pb2.Evaluation:
        """Return the evaluation of a pod in another cluster, by a session of its own."""
        events = [scheduler_pb2.Event(at_ns=at_ns, add=held) for held in cluster.objects]
        for pod in cluster.nominated:
            events.append(scheduler_pb2.Event(at_ns=at_ns, add=KubernetesObject(pod=pod)))
        with contextlib.closing(
            SchedulerEvaluationSession(self._address, self._config, self._tls)
        ) as apart:
            apart.report(at_ns, events)
            return apart._evaluation(scheduler_rpc.EvaluatePodRequest(new_pod=cluster.pod, top_k=1))

    def _evaluation(self, request: scheduler_rpc.EvaluatePodRequest) -> scheduler_pb2.Evaluation:
        try:
            return self.evaluate(request).evaluation
        except grpc.RpcError as error:
            raise BackendError(f"{self._title} answers {describe(error)}") from error


_FREE_RUN_OUTCOMES = frozenset({"scheduled", "preempted", "evicted"})


class BindingMatch(Enum):
    """The free run's binding of the same pod, beside a recorded binding.

    TIED: to another node, one of several with equal scores, so that only the tie-break may differ.
    UNBOUND: the pod was not bound, or not as often.
    """

    SAME = "the recorded node"
    TIED = "another node of several equal ones"
    OTHER = "another node"
    UNBOUND = "not bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOverlap:
    """Numbers of preempted (or evicted) pods: in both, in the recording only, in the run only."""

    both: int
    recorded_only: int
    run_only: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeRunAgreement:
    """A free run beside the recording; `run_only` counts bindings that were not recorded."""

    bindings: Counter[BindingMatch]
    run_only: int
    preempted: PodOverlap
    evicted: PodOverlap

    def to_mapping(self) -> dict[str, Any]:
        """Return the figures as JSON data."""
        return {
            "bindings": {
                **{match.value: self.bindings[match] for match in BindingMatch},
                "in the run only": self.run_only,
            },
            "preempted": asdict(self.preempted),
            "evicted": asdict(self.evicted),
        }


@dataclass(slots=True)
class RecordedOutcomes:
    """The bindings, preemptions and evictions observed in a trace; memory grows with pods.

    Pods are identified by namespace and name, since a controller's pod has another UID in a run.
    """

    nodes: dict[str, list[str]] = field(default_factory=dict)
    preempted: set[str] = field(default_factory=set)
    evicted: set[str] = field(default_factory=set)

    def seen(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records, and add their observations."""
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

    def agreement(self, decisions: Iterable[Decision]) -> FreeRunAgreement:
        """Compare with a run's decisions; the n-th binding of a pod with its n-th recorded one."""
        bound, preempted, evicted = Counter[str](), set[str](), set[str]()
        bindings, run_only = Counter[BindingMatch](), 0
        for decision in decisions:
            observed = decision.observed
            key = _key(observed)
            match observed.WhichOneof("observed"):
                case "scheduled" if not decision.refused:
                    recorded = self.nodes.get(key, ())
                    if bound[key] < len(recorded):
                        bindings[_binding_match(observed, recorded[bound[key]])] += 1
                    else:
                        run_only += 1
                    bound[key] += 1
                case "preempted":
                    preempted.add(key)
                case "evicted":
                    evicted.add(key)
        bindings[BindingMatch.UNBOUND] = sum(map(len, self.nodes.values())) - bindings.total()
        return FreeRunAgreement(
            bindings=bindings,
            run_only=run_only,
            preempted=_overlap(self.preempted, preempted),
            evicted=_overlap(self.evicted, evicted),
        )


def has_outcomes(records: Iterable[Record]) -> bool:
    """Return whether a trace observes any binding, preemption or eviction; reads to the first."""
    return any(
        record.HasField("observed") and record.observed.WhichOneof("observed") in _FREE_RUN_OUTCOMES
        for record in records
    )


def _key(observed: Observed) -> str:
    return f"{observed.object.namespace}/{observed.object.name}"


def _binding_match(observed: Observed, recorded: str) -> BindingMatch:
    if observed.scheduled.node_name == recorded:
        return BindingMatch.SAME
    return BindingMatch.TIED if observed.scheduled.tied_nodes > 1 else BindingMatch.OTHER


def _overlap(recorded: set[str], run: set[str]) -> PodOverlap:
    return PodOverlap(
        both=len(recorded & run), recorded_only=len(recorded - run), run_only=len(run - recorded)
    )
