"""One comparison from beginning to end: services found or started, the recording read, judged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from replay.backends.errors import ConfigurationError
from replay.backends.processes import EmbeddedServices
from replay.compare.comparison import Comparison
from replay.compare.findings import Finding, Report
from replay.compare.reading import read_recording
from replay.compare.recorded import Recording
from replay.compare.scheduler import JudgingScheduler
from replay.compare.versions import RULES, changed_rules
from reprieve.scheduler.v1alpha1 import scheduler_pb2
from services.rpc.client import PLAIN, ClientTls

Progress = Callable[[int, int], None]


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
        address = settings.scheduler_address or _started(stack)
        tls = settings.tls if settings.scheduler_address else PLAIN
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


def _started(stack: contextlib.ExitStack) -> str:
    embedded = stack.enter_context(EmbeddedServices(eviction=False))
    return embedded.addresses["scheduler"]


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
