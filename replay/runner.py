"""Runs one replay: connects or starts the services, plays the trace, leaves the results.

This is the only module that knows services, world and results.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter_ns

from replay.autoscaling.recorded import without_recorded_scaling
from replay.backends.audit import Audit, open_audit
from replay.backends.processes import Compiling
from replay.backends.services import AutoscalerService, EvictionService, SchedulerService
from replay.errors import BackendError, ConfigurationError, RunError, ServiceLostError
from replay.forks import Origin, begun_from, shared_beginning
from replay.recovery import (
    Checkpointer,
    Recovery,
    gone_back,
    patient_services,
    position_at,
    restore,
)
from replay.results.recorder import RecorderPosition, RunRecorder
from replay.results.run.directory import RunDirectory
from replay.results.run.files import SPANS
from replay.results.run.growth import RunGrowth
from replay.results.run.listing import listed
from replay.results.run.manifest import Manifest, trace_files
from replay.results.run.resume_point import ResumePoint, RunCommand
from replay.results.spans.rounds import synchronize_attributes
from replay.results.summary.summary import Summary, summarize
from replay.results.summary.tally import Tally
from replay.rule_versions import NEWEST_RULES, rules_of
from replay.sessions import Services, open_services
from replay.settings import SMALL_RECORDS, ReplaySettings
from replay.world.ahead.look_ahead import LookAhead
from replay.world.ahead.windows import UnforeseenRejectionError
from replay.world.api.cluster import Cluster
from replay.world.controllers.autoscaling.node_groups import Autoscaling
from replay.world.kubelet.memory_limits import DEFAULT_KUBELET, KubeletMemory
from replay.world.kubelet.usage import MEMORY
from replay.world.loop.replay import Limits, Replay, ReplayEnd
from replay.world.loop.rounds import RestartedScheduler
from replay.world.response_checks import ContractError
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2
from reprieve.eviction.v1beta1 import eviction_pb2, eviction_service_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.config.kubelet import read_kubelet_configuration
from services.garbage import calm
from services.kube.time import format_duration
from services.rpc.version import IMPLEMENTATION
from services.telemetry.collector import Signal, collector_of
from services.telemetry.setup import open_span_sink
from services.telemetry.span import Delivery, SpanSink


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedReplay:
    """A replay that has ended; `usage` is by the name of the child process."""

    run: RunDirectory
    replay: Replay
    summary: Summary
    delivery: Delivery
    usage: dict[str, ProcessUsage]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUsage:
    """CPU seconds of the replay itself (not of its start) and peak memory, bytes."""

    cpu_s: float
    peak_bytes: int


Progress = Callable[[int, Cluster, Tally], None]
Records = Callable[[], Iterator[trace_pb2.Record]]


def run_replay(
    settings: ReplaySettings,
    open_records: Records,
    progress: Progress,
    notice: Callable[[str], None] = lambda _: None,
    compiling: Compiling = lambda _done, _all: None,
    origin: Origin | None = None,
    announce: Callable[[str], None] = lambda _: None,
) -> FinishedReplay:
    """Replay the records of a trace, which `open_records` opens again where a run is resumed.

    Some records are read before a service is started, and the services open their sessions before
    the run directory is made: an invalid trace, a refused configuration and a service that cannot
    be reached leave no files and do not touch a former run. `notice` receives lines about services
    that were lost, `compiling` how many kernels were compiled, `announce` a line about the rules
    that the trace's version chose. `origin`: a run whose beginning this one shares. A small trace
    loads no kernels at the start, and has no child processes unless the settings ask for them.
    Raises BackendError, LoopError, RunError, and what reading the records raises.
    """
    open_records = _scaled(open_records, settings.autoscaling)
    first, records = _first_records(open_records())
    is_small = len(first) < SMALL_RECORDS
    settings = _fitted(settings, first, announce)
    if settings.run_path is not None and not settings.resumes:
        RunDirectory.check(settings.run_path, force=settings.force)
    calm(young=1_000_000)
    with contextlib.ExitStack() as stack:
        patience_ns = settings.reconnect_ns if settings.resumes else 0
        starting = partial(
            open_services, settings=settings, warms_up=not is_small, compiling=compiling
        )
        services = patient_services(stack, starting, patience_ns, notice)
        run = stack.enter_context(_directory(settings))
        manifest = _manifest(settings, services.scheduler)
        for warning in services.warnings:
            notice(f"Warning: {warning}")
        recovery = Recovery(services, settings.reconnect_ns, notice)
        start_ns = first[0].time_ns if first else 0
        manifest, point = _begun(settings, run, manifest, origin, start_ns, notice)
        if settings.resumes:
            recovery.reopen(point)
        elif point.files:
            manifest, point = _shared(run, manifest, point, recovery, notice)
        before = {name: process.cpu_s() for name, process in services.embedded.processes.items()}
        while True:
            attempt = _Attempt(settings, services, run, point, notice, recovery)
            try:
                with attempt.recorder:
                    attempt.play(records, progress)
                    break
            except ServiceLostError as error:
                point = recovery.recover(error, run, attempt.point, attempt.replay.instants)
                records = open_records()
            except UnforeseenRejectionError as error:
                point = gone_back(run, attempt.point, notice)
                recovery.go_on_without_windows(error, point)
                records = open_records()
        usage = {
            name: ProcessUsage(
                cpu_s=max(0.0, process.cpu_s() - before.get(name, 0.0)),
                peak_bytes=process.peak_memory_bytes(),
            )
            for name, process in services.embedded.processes.items()
        }
        stopped_ns = {
            ReplayEnd.UNTIL: first[0].time_ns + (settings.until_ns or 0) if first else 0,
            ReplayEnd.WINDOW: attempt.header.window_end_time_ns,
        }
        end, replay = attempt.end, attempt.replay
        end_ns = max(replay.now_ns, stopped_ns.get(end, 0))
        summary = attempt.summary(end_ns)
        run.write_summary(summary.to_mapping())
        run.write_manifest(
            manifest.ended(end.value, attempt.header.kubernetes_version, end_ns=end_ns)
        )
        run.remove_resume_point()
        return FinishedReplay(
            run=run, replay=replay, summary=summary, delivery=attempt.delivery, usage=usage
        )


def _scaled(open_records: Records, autoscaling: Autoscaling | None) -> Records:
    """Return what opens the records of a trace, without what an autoscaler decides in the run."""
    if autoscaling is None:
        return open_records
    return lambda: without_recorded_scaling(open_records(), autoscaling)


def _first_records(
    records: Iterator[trace_pb2.Record],
) -> tuple[list[trace_pb2.Record], Iterator[trace_pb2.Record]]:
    """Return the first SMALL_RECORDS records, or all that there are, and all of them again."""
    first = list(itertools.islice(records, SMALL_RECORDS))
    return first, itertools.chain(first, records)


def _begun(
    settings: ReplaySettings,
    run: RunDirectory,
    manifest: Manifest,
    origin: Origin | None,
    start_ns: int,
    notice: Callable[[str], None],
) -> tuple[Manifest, ResumePoint]:
    """Begin a run, or resume it; return its manifest and from where it goes on.

    `origin` is a run whose beginning a new one shares, `start_ns` the time of the first record.
    """
    if settings.resumes:
        point, former = ResumePoint.read(run.path), run.manifest()
        _check_same(former, manifest)
        return replace(manifest, shared=former.shared), gone_back(run, point, notice)
    command = RunCommand.here(settings.argv, settings.run_path or run.path)
    point = ResumePoint(version=settings.version, command=command)
    # A folder with a manifest can be resumed; one without has nothing of a run yet.
    run.write_resume_point(point)
    run.write_manifest(manifest)
    exports_spans = collector_of(Signal.TRACES, os.environ) is not None
    checkpoint = None
    if origin is not None:
        checkpoint = origin.checkpoint(manifest, exports_spans=exports_spans)
    if origin is None or checkpoint is None:
        return manifest, point
    point = begun_from(checkpoint, origin.run, run, point, notice)
    if point.files:
        manifest = replace(manifest, shared=shared_beginning(origin.run, point, start_ns))
        run.write_manifest(manifest)
    return manifest, point


def _fitted(
    settings: ReplaySettings, first: list[trace_pb2.Record], announce: Callable[[str], None]
) -> ReplaySettings:
    """Return the settings with what they leave to the trace: rules, devices, where services run."""
    if settings.in_process is None:
        settings = replace(settings, in_process=len(first) < SMALL_RECORDS)
    header = first[0].header if first else trace_pb2.Header()
    settings = replace(settings, has_devices=header.has_devices)
    recorded = header.kubernetes_version
    rules = rules_of(recorded)
    if settings.rules or not rules:
        return settings
    span = "" if rules == NEWEST_RULES else f", the default before {NEWEST_RULES}"
    announce(
        f"Rules: {rules}{span}: the trace is of Kubernetes {recorded} (--rules chooses others)."
    )
    return replace(settings, default_rules=rules)


def _shared(
    run: RunDirectory,
    manifest: Manifest,
    point: ResumePoint,
    recovery: Recovery,
    notice: Callable[[str], None],
) -> tuple[Manifest, ResumePoint]:
    """Open the sessions of a run that begins with a part of another one.

    Where a service does not take the state, as one of another build, it begins at its beginning.
    """
    try:
        recovery.reopen(point)
    except ServiceLostError:
        raise
    except BackendError as error:
        notice(f"{error}; nothing of another run is shared")
        run.go_back({})
        manifest, point = replace(manifest, shared=None), point.beginning
        run.write_resume_point(point)
        run.write_manifest(manifest)
        recovery.reopen(point)
    return manifest, point


def look_at_replay(settings: ReplaySettings, open_records: Records) -> None:
    """Validate a replay as run_replay does before it creates its run directory; write nothing.

    Services without an address run within this process.
    """
    first, _ = _first_records(open_records())
    settings = _fitted(settings, first, lambda _: None)
    if settings.run_path is not None and not settings.resumes:
        RunDirectory.check(settings.run_path, force=settings.force)
    with contextlib.ExitStack() as stack:
        open_services(stack, settings=replace(settings, in_process=True))


class _Attempt:
    """A run from a checkpoint, or from its beginning, until its end or the loss of a service.

    `point` is its last checkpoint. `end`, `delivery` and `header` are set by `play`.
    """

    def __init__(
        self,
        settings: ReplaySettings,
        services: Services,
        run: RunDirectory,
        point: ResumePoint,
        notice: Callable[[str], None],
        recovery: Recovery,
    ) -> None:
        position = position_at(point)
        self._settings = settings
        self._services = services
        self._run = run
        self.header = trace_pb2.Header()
        self.end = ReplayEnd.FINISHED
        self.delivery = Delivery()
        self.recorder = RunRecorder(
            run,
            spans=_span_sink(settings, run, position),
            sampling=settings.sampling,
            wall_clock=settings.span_clock == "wall",
            seed=settings.seed,
            position=position,
            autoscaling=settings.autoscaling,
        )
        scheduler, eviction = services.scheduler, services.eviction
        scheduler.follow(self.recorder.traceparent)
        if eviction is not None:
            eviction.follow(self.recorder.traceparent)
        timed = _TimedEviction(eviction, self.recorder) if eviction is not None else None
        autoscaler = services.autoscaler
        if autoscaler is not None:
            autoscaler.follow(self.recorder.traceparent)
        scaler = _TimedAutoscaler(autoscaler, self.recorder) if autoscaler is not None else None
        audit, not_audited = _opened_audit(services)
        self.replay = Replay(
            scheduler,
            timed,
            models=settings.models,
            sink=self.recorder.decided,
            failed=self.recorder.failed,
            objects=self.recorder.object_changed,
            observer=self.recorder,
            cluster=Cluster(
                scheduler.names, binding_ends_nomination=settings.binding_ends_nomination
            ),
            usage=settings.usage,
            kubelet=_kubelet_memory(settings.eviction),
            audit=audit,
            autoscaler=scaler,
            autoscaling=settings.autoscaling,
        )
        self._audit, self._not_audited = audit, not_audited
        self.replay.restarted = self._restarted
        self._ahead = LookAhead(self.replay, scheduler, opens_windows=recovery.opens_windows)
        self.replay.send_through(self._ahead)
        restore(self.replay, point)
        if audit is not None and point.rounds:
            self._catch_up(audit)
        self._notice = notice
        self._checkpointer = Checkpointer(
            run,
            services,
            point,
            every_ns=settings.checkpoint_every_ns,
            keeps=settings.keep_checkpoints,
            notice=notice,
        )
        self._growth = RunGrowth(run.path, lambda text: notice(f"Warning: {text}"))

    @property
    def point(self) -> ResumePoint:
        """Return the last checkpoint."""
        return self._checkpointer.point

    def play(self, records: Iterable[trace_pb2.Record], progress: Progress) -> None:
        """Replay the trace to the run's end. Raises LoopError and BackendError."""

        def report(now_ns: int, cluster: Cluster) -> None:
            progress(now_ns, cluster, self.recorder.tally)
            self._growth.look(now_ns, self.replay.stop_ns)
            saver = self._checkpointer
            if not self._ahead.is_open and saver.is_wanted(now_ns, self.replay):
                saver.save(now_ns, self.replay, self.recorder)

        restarts_ns = [restart.at_ns for restart in self._settings.restarts]
        limits = Limits(until_ns=self._settings.until_ns, restarts_ns=restarts_ns, progress=report)
        try:
            self.end = self.replay.run(_noting(records, self.header), limits)
        except ContractError as error:
            raise self._with_place(error) from error
        self.delivery = self.recorder.close()

    def _restarted(self, now_ns: int, restarts: int) -> RestartedScheduler:
        """Open a session with the next scheduler, which lists all objects. Raises BackendError."""
        services, since_ns = self._services, now_ns - self.replay.source.first_ns
        self.recorder.flush()
        services.restart_scheduler(now_ns, listed(self._run.rounds(), now_ns))
        for warning in services.warnings:
            self._notice(f"Warning: {warning}")
        audit, not_audited = _opened_audit(services)
        self._audit, self._not_audited = audit, not_audited or self._not_audited
        if audit is not None:
            self._catch_up(audit)
        restart = self._settings.restarts[restarts - 1]
        options = f" with {restart.options}" if restart.options else ""
        text = _RESTARTED.format(format_duration(since_ns), options)
        self.replay.journal.note("restart", text)
        return RestartedScheduler(services.scheduler.names, audit)

    def _catch_up(self, audit: Audit) -> None:
        pods = self.replay.cluster.pods.values()
        nodes = {pod.uid: pod.node_name for pod in pods if pod.node_name}
        audit.catch_up(self._run.rounds(), nodes)

    def _with_place(self, error: ContractError) -> BackendError:
        """Return the error of a response with its request, time, and pod or node."""
        services = self._services
        scheduler = services.scheduler
        sessions: dict[str, SchedulerService | EvictionService | AutoscalerService | None]
        sessions = {
            "scheduler": scheduler,
            "eviction service": services.eviction,
            "autoscaler": services.autoscaler,
        }
        pod = self.replay.cluster.pods.get(error.pod_uid)
        about = f"pod {error.pod_uid if pod is None else pod.key}" if error.pod_uid else ""
        about = about or (f"node {error.node_name}" if error.node_name else "")
        session = sessions[error.service] or scheduler
        return session.invalid(error.field, error.problem, time_ns=error.time_ns, about=about)

    def _note_ungiven_tick(self) -> None:
        """Note the tick that a finished replay owes the scheduler.

        Ours requests those of its queue's flushes alone, which help no pod that has been tried.
        """
        replay = self.replay
        due_ns, start_ns = replay.ungiven_tick_ns, replay.source.first_ns
        is_ours = self._services.scheduler.opened.implementation == IMPLEMENTATION
        if due_ns is None or is_ours or self.end is not ReplayEnd.FINISHED:
            return
        due, end = (format_duration(at_ns - start_ns) for at_ns in (due_ns, replay.now_ns))
        replay.journal.note("tick", _TICK_NOT_GIVEN.format(due, end, due))

    def summary(self, end_ns: int) -> Summary:
        """Return the figures of the run, which ended at `end_ns`."""
        not_audited = self._not_audited or (self._audit.stopped if self._audit else "")
        if not_audited:
            self.replay.journal.note("audit", _NOT_AUDITED.format(not_audited))
        self._note_ungiven_tick()
        return summarize(
            self.recorder.tally,
            run=str(self._settings.run_path or self._run.path),
            end=self.end.value,
            end_ns=end_ns,
            wall_ns=self.recorder.wall_ns,
            notes=self.replay.journal.notes,
            eviction_not_judged=self.replay.journal.eviction_not_judged,
            warnings=self._services.warnings,
            spans=self.delivery,
            span_choice=str(self._settings.sampling),
            services=self._settings.services,
            messages=self.replay.stream.messages - self._ahead.rounds_ahead,
            windows_ended=self._ahead.ended,
            autoscaling=self._settings.autoscaling,
        )


_TICK_NOT_GIVEN = (
    "the scheduler requested a tick {} after the start of the trace, and the replay ended at {}: "
    "pods that were tried, or had 10 minutes for it, since the cluster last changed do not keep it "
    "going; --until {} plays on"
)
_RESTARTED = (
    "the scheduler was restarted {} after the start of the trace{}: it listed all objects, pending "
    "pods went to activeQ without back-off, their nominations were those of their status, and "
    "attempts are counted from 1 again"
)
_NOT_AUDITED = (
    "the scheduler's placements are not checked by our filters, or not all of them: {}. Invalid "
    "ones are found only where a kubelet rejects the pod"
)


def _opened_audit(services: Services) -> tuple[Audit | None, str]:
    """Return the audit of the scheduler's decisions, or None and the reason ("": by choice).

    Our own scheduler, if this replay has started it, decides by the same filters.
    """
    settings = services.in_force
    if not settings.audits:
        return None, ""
    try:
        return open_audit(settings.scheduler, services.scheduler.names), ""
    except ConfigurationError as error:
        return None, str(error)


class _TimedEviction:
    """An eviction service whose exchanges the recorder measures."""

    def __init__(self, service: EvictionService, recorder: RunRecorder) -> None:
        self._service = service
        self._recorder = recorder

    def apply(
        self, operations: Sequence[eviction_service_pb2.Operation]
    ) -> Sequence[eviction_service_pb2.OperationResult]:
        """Apply a batch and record its wall time."""
        began_ns = perf_counter_ns()
        answers = self._service.apply(operations)
        taken_ns = perf_counter_ns() - began_ns
        attributes = synchronize_attributes(answers)
        self._recorder.measured("synchronize", began_ns, taken_ns, len(operations), attributes)
        return answers


class _TimedAutoscaler:
    """An autoscaler service whose exchanges the recorder measures."""

    def __init__(self, service: AutoscalerService, recorder: RunRecorder) -> None:
        self._service = service
        self._recorder = recorder

    def apply(
        self, changes: Sequence[autoscaler_service_pb2.Change], step: autoscaler_service_pb2.Step
    ) -> autoscaler_service_pb2.ApplyResponse:
        """Take a step and record its wall time."""
        began_ns = perf_counter_ns()
        answer = self._service.apply(changes, step)
        taken_ns = perf_counter_ns() - began_ns
        name = "scan" if step.HasField("scan") else "autoscaler"
        self._recorder.measured(name, began_ns, taken_ns, 0, {"reprieve.changes": len(changes)})
        return answer


def _noting(
    records: Iterable[trace_pb2.Record], header: trace_pb2.Header
) -> Iterator[trace_pb2.Record]:
    for record in records:
        if record.HasField("header"):
            header.CopyFrom(record.header)
        yield record


def _kubelet_memory(config: eviction_pb2.EvictionConfig) -> KubeletMemory:
    """Return what the kubelets' settings say about limits of memory."""
    if not config.kubelet_configuration:
        if config.use_defaults and not config.hard:
            return DEFAULT_KUBELET
        enforced = "pods" in config.enforce_node_allocatable
        return KubeletMemory(hard_threshold=config.hard.get(MEMORY, ""), limits_pods=enforced)
    file = read_kubelet_configuration(config.kubelet_configuration)
    return KubeletMemory(
        hard_threshold=file.eviction.hard.get(MEMORY, ""),
        limits_pods="pods" in file.eviction.enforce_node_allocatable,
        kills_process=file.single_process_oom_kill,
    )


def _span_sink(
    settings: ReplaySettings, run: RunDirectory, position: RecorderPosition | None
) -> SpanSink | None:
    if not settings.sampling.share:
        return None
    spans = None if position is None else position.spans
    return open_span_sink(lambda: run.growing(SPANS), settings.version, os.environ, spans)


_MAY_DIFFER = ("argv", "shared", "finished", "end", "end_ns", "kubernetes_version", "files")


def _check_same(former: Manifest, present: Manifest) -> None:
    """Raise RunError if a run would be resumed with other inputs than it was begun with."""
    for field in dataclasses.fields(Manifest):
        if field.name in _MAY_DIFFER:
            continue
        was, now = getattr(former, field.name), getattr(present, field.name)
        if _plain(was) != _plain(now):
            raise RunError(
                f"the run cannot be resumed: its {field.name.replace('_', ' ')} has changed since "
                "it was begun; replay the trace again"
            )


def _plain(value: object) -> object:
    """Return a value as it is after it was written as JSON and read again."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _directory(settings: ReplaySettings) -> RunDirectory:
    if settings.resumes and settings.run_path is not None:
        return RunDirectory.reopen(settings.run_path)
    if settings.run_path is not None:
        return RunDirectory.create(settings.run_path, force=settings.force)
    first = settings.trace_paths[0].name if settings.trace_paths else "trace"
    return RunDirectory.create_next(first.partition(".")[0] or "trace")


def _manifest(settings: ReplaySettings, scheduler: SchedulerService) -> Manifest:
    files = [path for path in settings.trace_paths if path.is_file()]
    for folder in settings.trace_paths:
        if folder.is_dir():
            files += sorted(path for path in folder.iterdir() if path.is_file())
    return Manifest(
        version=settings.version,
        traces=trace_files(files),
        decided_by=scheduler.implementation,
        argv=settings.argv,
        **settings.stored(),
    )
