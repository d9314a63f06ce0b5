"""Runs one replay: connects or starts the services, plays the trace, leaves the results.

This is the only module that knows services, world and results.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns

from replay.backends.processes import EmbeddedServices
from replay.backends.services import EvictionService, SchedulerService
from replay.results.recorder import Recorder
from replay.results.run.directory import RunDirectory
from replay.results.run.files import SPANS
from replay.results.run.history import Checkpoints
from replay.results.run.manifest import EMBEDDED, IN_PROCESS, Manifest, trace_files
from replay.results.spans.rounds import synchronize_attributes
from replay.results.summary.summary import Summary, summarize
from replay.results.summary.tally import Tally
from replay.world.api.cluster import Cluster
from replay.world.kubelet.annotations import UsageRule
from replay.world.loop.replay import Limits, Replay, ReplayEnd
from replay.world.models import Models
from reprieve.eviction.v1beta1 import eviction_pb2, eviction_service_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.access import PLAIN, ClientTls
from services.rpc.server import calm
from services.telemetry.setup import open_span_sink
from services.telemetry.span import Delivery, Sampling, SpanSink


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """The settings of a replay.

    scheduler_address, eviction_address: "" starts the service as a child process, or within this
    one with in_process. tls: for services at other addresses. until_ns: from the trace's first
    record on. wall_spans: pods' spans show wall time. overrides: changes that were already made to
    trace and configuration, for the manifest. usage: of pods, in place of the trace's.
    follow_until: until when a recording was followed, for the manifest; "" for a replay from its
    beginning.
    """

    version: str
    argv: tuple[str, ...] = ()
    trace_paths: tuple[Path, ...] = ()
    scheduler_address: str = ""
    eviction_address: str = ""
    tls: ClientTls = PLAIN
    scheduler: scheduler_pb2.SchedulerConfig = field(default_factory=scheduler_pb2.SchedulerConfig)
    eviction: eviction_pb2.EvictionConfig = field(
        default_factory=lambda: eviction_pb2.EvictionConfig(use_defaults=True)
    )
    models: Models = field(default_factory=Models)
    until_ns: int | None = None
    run_path: Path | None = None
    force: bool = False
    in_process: bool = False
    sampling: Sampling = field(default_factory=lambda: Sampling(1.0))
    wall_spans: bool = False
    overrides: Mapping[str, object] = field(default_factory=dict)
    usage: tuple[UsageRule, ...] = ()
    follow_until: str = ""


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


_SMALL = 500
"""Records that a trace must have for compiled kernels to be loaded at the start."""

Progress = Callable[[int, Cluster, Tally], None]


def run_replay(
    settings: ReplaySettings, records: Iterator[trace_pb2.Record], progress: Progress
) -> FinishedReplay:
    """Replay `records`. Raises BackendError, LoopError, RunError, and what reading them raises.

    Some records are read before a service is started, and the services open their sessions before
    the run directory is made: an invalid trace, a refused configuration and a service that cannot
    be reached leave no files and do not touch a former run.
    """
    first = list(itertools.islice(records, _SMALL))
    records = itertools.chain(first, records)
    if settings.run_path is not None:
        RunDirectory.check(settings.run_path, force=settings.force)
    calm(young=1_000_000)
    with contextlib.ExitStack() as stack:
        embedded = stack.enter_context(
            EmbeddedServices(
                scheduler=not settings.scheduler_address,
                eviction=settings.models.eviction and not settings.eviction_address,
                in_process=settings.in_process,
                warms_up=len(first) == _SMALL,
            )
        )
        scheduler = _scheduler(settings, embedded)
        stack.callback(scheduler.close)
        eviction = _eviction(settings, embedded)
        if eviction is not None:
            stack.callback(eviction.close)
        run = stack.enter_context(_directory(settings))
        manifest = _manifest(settings, scheduler)
        run.write_manifest(manifest)
        recorder = stack.enter_context(
            Recorder(
                run,
                spans=_span_sink(settings, run),
                sampling=settings.sampling,
                wall_clock=settings.wall_spans,
                seed=settings.scheduler.seed,
            )
        )
        scheduler.follow(recorder.traceparent)
        if eviction is not None:
            eviction.follow(recorder.traceparent)
        replay = Replay(
            scheduler,
            _TimedEviction(eviction, recorder) if eviction is not None else None,
            models=settings.models,
            sink=recorder.decided,
            failed=recorder.failed,
            observer=recorder,
            cluster=Cluster(scheduler.names),
            usage=settings.usage,
        )
        before = {name: process.cpu_s() for name, process in embedded.processes.items()}

        checkpoints = Checkpoints(run.path, scheduler) if scheduler.opened.resumable else None

        def report(now_ns: int, cluster: Cluster) -> None:
            progress(now_ns, cluster, recorder.tally)
            if checkpoints is None or not checkpoints.is_due or run.has_extenders:
                return
            if not replay.stream.is_ahead:
                checkpoints.save(now_ns)

        header = trace_pb2.Header()
        limits = Limits(until_ns=settings.until_ns, progress=report)
        end = replay.run(_noting(records, header), limits)
        delivery = recorder.close()
        usage = {
            name: ProcessUsage(
                cpu_s=process.cpu_s() - before[name], peak_bytes=process.peak_memory_bytes()
            )
            for name, process in embedded.processes.items()
        }
        summary = summarize(
            recorder.tally,
            run=str(run.path),
            end=end.value,
            wall_ns=recorder.wall_ns,
            notes=replay.journal.notes,
            eviction_not_judged=replay.pressure.not_judged,
            warnings=[*scheduler.opened.warnings, *(eviction.opened.warnings if eviction else ())],
            spans=delivery,
            span_choice=str(settings.sampling),
            services=_services(settings),
            messages=replay.stream.messages,
            windows_ended=replay.windows.ended,
        )
        run.write_summary(summary.to_mapping())
        stopped_ns = {
            ReplayEnd.UNTIL: first[0].at_ns + (settings.until_ns or 0) if first else 0,
            ReplayEnd.WINDOW: header.window_end_ns,
        }
        end_ns = max(replay.now_ns, stopped_ns.get(end, 0))
        run.write_manifest(manifest.ended(end.value, header.kubernetes_version, end_ns=end_ns))
        return FinishedReplay(
            run=run, replay=replay, summary=summary, delivery=delivery, usage=usage
        )


class _TimedEviction:
    """An eviction service whose exchanges the recorder measures."""

    def __init__(self, service: EvictionService, recorder: Recorder) -> None:
        self._service = service
        self._recorder = recorder

    def apply(
        self, operations: Sequence[eviction_service_pb2.Operation]
    ) -> Sequence[eviction_service_pb2.OperationResult]:
        """Apply a batch and record its wall time."""
        began_ns = perf_counter_ns()
        answers = self._service.apply(operations)
        taken_ns = perf_counter_ns() - began_ns
        found = synchronize_attributes(answers)
        self._recorder.measured("synchronize", began_ns, taken_ns, len(operations), found)
        return answers


def _noting(
    records: Iterable[trace_pb2.Record], header: trace_pb2.Header
) -> Iterator[trace_pb2.Record]:
    for record in records:
        if record.HasField("header"):
            header.CopyFrom(record.header)
        yield record


def _span_sink(settings: ReplaySettings, run: RunDirectory) -> SpanSink | None:
    if not settings.sampling.share:
        return None
    return open_span_sink(run.path / SPANS, settings.version, os.environ)


def _directory(settings: ReplaySettings) -> RunDirectory:
    if settings.run_path is not None:
        return RunDirectory.create(settings.run_path, force=settings.force)
    first = settings.trace_paths[0].name if settings.trace_paths else "trace"
    return RunDirectory.create_next(first.partition(".")[0] or "trace")


def _manifest(settings: ReplaySettings, scheduler: SchedulerService) -> Manifest:
    files = [path for path in settings.trace_paths if path.is_file()]
    for folder in settings.trace_paths:
        if folder.is_dir():
            files += sorted(each for each in folder.iterdir() if each.is_file())
    return Manifest(
        version=settings.version,
        seed=settings.scheduler.seed,
        rules=settings.scheduler.rules or "v1.34",
        traces=trace_files(files),
        configuration={
            "kube_scheduler_configuration": settings.scheduler.kube_scheduler_configuration,
            "kubelet_configuration": settings.eviction.kubelet_configuration,
            "queue_rules": settings.scheduler.queue.rules,
            "disable_preemption": settings.scheduler.disable_preemption,
            "sample_nodes": settings.scheduler.sample_nodes,
            "ties": (
                scheduler_pb2.TieBreak.Name(settings.scheduler.ties)
                if settings.scheduler.HasField("ties")
                else ""
            ),
            **({"overrides": dict(settings.overrides)} if settings.overrides else {}),
            **({"follow_until": settings.follow_until} if settings.follow_until else {}),
        },
        models=dataclasses.asdict(settings.models),
        services=_services(settings),
        decided_by=scheduler.implementation,
        batch_size=settings.scheduler.batch_size,
        spans=str(settings.sampling),
        argv=settings.argv,
    )


def _services(settings: ReplaySettings) -> dict[str, str]:
    """Return where each service runs: an address, or how this replay started it."""
    started = IN_PROCESS if settings.in_process else EMBEDDED
    return {
        "scheduler": settings.scheduler_address or started,
        "eviction": settings.eviction_address or started,
    }


def _scheduler(settings: ReplaySettings, embedded: EmbeddedServices) -> SchedulerService:
    address = settings.scheduler_address or embedded.addresses["scheduler"]
    tls = settings.tls if settings.scheduler_address else PLAIN
    return SchedulerService(address, settings.scheduler, tls)


def _eviction(settings: ReplaySettings, embedded: EmbeddedServices) -> EvictionService | None:
    if not settings.models.eviction:
        return None
    address = settings.eviction_address or embedded.addresses["eviction"]
    tls = settings.tls if settings.eviction_address else PLAIN
    return EvictionService(address, settings.eviction, tls)
