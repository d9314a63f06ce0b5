"""Runs the comparison with a recording on a scheduler service."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

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
from replay.kube import device_versions
from replay.rule_versions import rules_of
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as scheduler_rpc
from services.rpc.access import PLAIN, ClientTls

Progress = Callable[[int, int], None]
DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings:
    """The settings of a comparison; an address "" starts the scheduler as a child process.

    follows_version: whether the rules of the recorded version, if known, replace `scheduler.rules`.
    """

    paths: tuple[Path, ...]
    format_name: str | None = None
    scheduler_address: str = ""
    tls: ClientTls = PLAIN
    scheduler: scheduler_pb2.SchedulerConfig = field(default_factory=scheduler_pb2.SchedulerConfig)
    follows_version: bool = False


def compare_recorded(settings: CompareSettings, progress: Progress) -> ComparisonReport:
    """Compare every decision of a recording. Raises BackendError and TraceError.

    `progress` is called with the number of compared decisions and their total.
    """
    with contextlib.ExitStack() as stack:
        address, tls = settings.scheduler_address, settings.tls
        if not address:
            embedded = stack.enter_context(
                EmbeddedServices(
                    eviction=False, configurations=[settings.scheduler.kube_scheduler_configuration]
                )
            )
            address, tls = embedded.addresses["scheduler"], PLAIN
        session = SchedulerEvaluationSession(address, settings.scheduler, tls)
        stack.callback(session.close)
        recording = read_recording(
            settings.paths, format_name=settings.format_name, scheduler_names=session.names
        )
        fitted = _fitted(settings, recording)
        if fitted != settings.scheduler:
            settings = replace(settings, scheduler=fitted)
            session = SchedulerEvaluationSession(address, fitted, tls)
            stack.callback(session.close)
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


def _fitted(settings: CompareSettings, recording: Recording) -> scheduler_pb2.SchedulerConfig:
    """Return the scheduler's configuration with what is left to the recording: rules, devices."""
    rules = rules_of(recording.kubernetes_version) if settings.follows_version else ""
    config = _with_rules(settings.scheduler, rules or settings.scheduler.rules)
    config.ignore_device_claims = recording.kinds.isdisjoint(device_versions.KINDS)
    return config


def _changed(
    settings: CompareSettings, recording: Recording, address: str, tls: ClientTls
) -> SchedulerEvaluationSession | None:
    """Return a session with the rules of the recorded version.

    None if these are the settings' rules, or if the service does not have them.
    """
    rules = changed_rules(recording.kubernetes_version, settings.scheduler.rules)
    if not rules:
        return None
    try:
        return SchedulerEvaluationSession(address, _with_rules(settings.scheduler, rules), tls)
    except ConfigurationError:
        return None


def _with_rules(config: scheduler_pb2.SchedulerConfig, rules: str) -> scheduler_pb2.SchedulerConfig:
    changed = scheduler_pb2.SchedulerConfig()
    changed.CopyFrom(config)
    changed.rules = rules
    return changed


def _counted(findings: Iterator[Finding], total: int, progress: Progress) -> Iterator[Finding]:
    for count, finding in enumerate(findings, 1):
        progress(count, total)
        yield finding


class RecordedContent(Enum):
    """STATES: every object after every change. OUTCOMES: decisions without the cluster's state."""

    STATES = "states"
    OUTCOMES = "outcomes"


def recorded_content(paths: Sequence[Path], format_name: str | None) -> RecordedContent:
    """Return the kind of content that `paths` record. Raises TraceError without any outcome."""
    importer, files = select(paths, format=format_name, issues=Issues())
    if importer.open_recording is not None:
        return RecordedContent.STATES
    if not importer.no_outcomes:
        return RecordedContent.OUTCOMES
    problem = f"--compare-recorded: {importer.no_outcomes}, but no scheduler's decisions"
    cure = "watches, an audit log, or a record of kube-scheduler-simulator or kwok"
    raise TraceError(str(files[0]), f"{problem}. Use a recording of a cluster: {cure}")


def without_outcomes(paths: Sequence[Path]) -> TraceError:
    """Return the error for a trace without outcomes in a format that can have them."""
    problem = "has no observed binding, preemption or eviction to compare with"
    return TraceError(str(paths[0]), problem)


class SchedulerEvaluationSession(SchedulerService):
    """A session that receives the recorded state and evaluates one pending pod at a time.

    The session makes no decisions: its rounds hold only events. Every call can raise BackendError;
    opening the session raises ConfigurationError if the configuration is refused.
    """

    def __init__(
        self, address: str, config: scheduler_pb2.SchedulerConfig, tls: ClientTls = PLAIN
    ) -> None:
        super().__init__(address, config, tls)
        self._address, self._config, self._tls = address, config, tls

    def report(self, at_ns: int, events: Sequence[scheduler_pb2.Event]) -> None:
        """Send the events up to `at_ns`."""
        self.send_round(scheduler_pb2.Round(time_ns=at_ns, events=events, events_only=True))
        self.receive_outcomes()

    def evaluate_pod(
        self, pod: ObjectReference, *, top_k: int | None = 1
    ) -> scheduler_pb2.Evaluation:
        """Return the evaluation of a pending pod in the current state; `top_k` None: all nodes."""
        named = ObjectReference(uid=pod.uid, namespace=pod.namespace, name=pod.name)
        return self._evaluation(scheduler_rpc.EvaluatePodRequest(pod=named, top_k=top_k))

    def evaluate_in(self, cluster: ClusterView, at_ns: int) -> scheduler_pb2.Evaluation:
        """Return the evaluation of a pod in another cluster, in a temporary session."""
        events = [scheduler_pb2.Event(time_ns=at_ns, add=held) for held in cluster.objects]
        for pod in cluster.nominated:
            events.append(scheduler_pb2.Event(time_ns=at_ns, add=KubernetesObject(pod=pod)))
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
