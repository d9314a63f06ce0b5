"""The threads of a recording: one for each resource, one for usage, one that flushes files.

A few more threads request proofs that watches are complete, periodically; at the end, one thread
for each resource does so (watcher.py).
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

from replay.errors import AllRefusedError, OutputError, ReplayError, unwritable
from replay.kube.kinds import RESOURCES, Resource
from replay.record.api import ApiServer
from replay.record.backoff import Backoff
from replay.record.coverage import (
    Watched,
    is_forbidden_at_cluster_scope,
    is_namespace_name,
    is_over,
    missing,
    resources_in,
    without_end,
)
from replay.record.frames import RecordingFolder
from replay.record.redact import Redactor
from replay.record.usage import ClusterIndex, UsageLog
from replay.record.usage_sources import ChosenSource
from replay.record.watcher import PROOF_S, Watcher, WatcherStatus

_END_S = 0.5
_FLUSH_S = 0.5
_PROVERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderSettings:
    """The settings of a recording. `usage_every_s` is the time between two samples.

    `page` is the limit of a list request; `backoff` creates the backoff of a requester. Namespaced
    kinds are recorded in `namespaces`, () for all; namespaces in `absent` do not exist.
    `prove_every_s` is the longest time between two proofs that a watch is complete.
    """

    resources: Sequence[Resource] = RESOURCES
    redactor: Redactor | None = None
    usage_every_s: float = 15.0
    page: int = 500
    backoff: Callable[[], Backoff] = Backoff
    namespaces: Sequence[str] = ()
    absent: Sequence[str] = ()
    prove_every_s: float = PROOF_S

    def scoped_resources(self) -> list[Resource]:
        """Return the resources to list and watch, each namespaced one once a namespace."""
        scoped = resources_in(self.namespaces, self.resources)
        return [resource for resource in scoped if resource.namespace not in self.absent]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingProgress:
    """The progress of a recording. `statuses` are by the names of resources and namespaces."""

    statuses: Mapping[str, WatcherStatus]
    samples: int
    usage_problem: str

    @property
    def listed(self) -> int:
        """Return the number of resources that were listed or refused."""
        return sum(status.is_listed or bool(status.refused) for status in self.statuses.values())

    @property
    def objects(self) -> int:
        """Return the number of objects that exist."""
        return sum(status.objects for status in self.statuses.values())

    @property
    def events(self) -> int:
        """Return the number of events that watches received."""
        return sum(status.events for status in self.statuses.values())

    @property
    def problems(self) -> list[str]:
        """Return the distinct messages of current failures that are retried."""
        problems = (status.problem for status in self.statuses.values())
        return list(dict.fromkeys(problem for problem in problems if problem))


class ClusterRecorder:
    """Records into a folder while the context `running` is open; `ended_ns`: when it ended."""

    def __init__(
        self,
        api: ApiServer,
        folder: RecordingFolder,
        usage: ChosenSource,
        options: RecorderSettings,
        now_ns: Callable[[], int],
    ) -> None:
        self._api = api
        self._ending = Event()
        redactor, index = options.redactor, ClusterIndex()
        hidden = redactor.text if redactor else str
        resources = options.scoped_resources()
        self._files = [
            folder.resource(resource, hidden(resource.namespace)) for resource in resources
        ]
        self._chosen, self._absent = usage, options.absent
        self._now_ns, self._prove_every_s = now_ns, options.prove_every_s
        self.ended_ns = 0
        self._watchers = [
            Watcher(
                resource=resource,
                api=api,
                file=file,
                index=index,
                ending=self._ending,
                now_ns=now_ns,
                redact=redactor.object if redactor else lambda raw: raw,
                page=options.page,
                backoff=options.backoff(),
                namespace=hidden(resource.namespace),
                redact_text=redactor.server_words if redactor else str,
            )
            for resource, file in zip(resources, self._files, strict=True)
        ]
        self._usage: UsageLog | None = None
        if usage.source is not None:
            file = folder.usage()
            self._files.append(file)
            self._usage = UsageLog(
                source=usage.source,
                file=file,
                index=index,
                redactor=redactor,
                ending=self._ending,
                now_ns=now_ns,
                every_s=options.usage_every_s,
                backoff=options.backoff(),
            )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start all threads; at the end of the context, stop them and close all files.

        Before that, each watch is proven complete at the end: for `RequestBounds.end_s` at most.
        """
        runs: list[Callable[[], Any]] = [watcher.run for watcher in self._watchers]
        if self._usage is not None:
            runs.append(self._usage.run)
        for first in range(_PROVERS):
            runs.append(functools.partial(self._prove_all, self._watchers[first::_PROVERS]))
        threads = [Thread(target=run, daemon=True) for run in runs]
        flusher = Thread(target=self._flush_all, daemon=True)
        for thread in [*threads, flusher]:
            thread.start()
        try:
            yield
            self.ended_ns = self._now_ns()
            if not self.broken():
                self._close_all()
        finally:
            self._ending.set()
            # This aborts every request, except one that resolves a name: its thread is abandoned.
            self._api.stop()
            end_s = time.monotonic() + _END_S
            for thread in [*threads, flusher]:
                thread.join(max(0.0, end_s - time.monotonic()))
            if self.ended_ns:
                for watcher in self._watchers:
                    watcher.note_missing_end()
            for file in self._files:
                file.close()

    def _close_all(self) -> None:
        """Let all watchers, in parallel, prove that they are complete, or list once more."""
        for watcher in self._watchers:
            watcher.end_ns = self.ended_ns
        closing = [Thread(target=watcher.close, daemon=True) for watcher in self._watchers]
        end_s = time.monotonic() + self._api.bounds.end_s
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(max(0.0, end_s - time.monotonic()))

    def _prove_all(self, watchers: Sequence[Watcher]) -> None:
        """Request proofs until the end; runs in a thread.

        At first proofs are more frequent, so that even a recording killed after seconds has a time
        up to which it is complete.
        """
        every_s = min(1.0, self._prove_every_s)
        while not self._ending.wait(every_s):
            every_s = min(2 * every_s, self._prove_every_s)
            for watcher in watchers:
                if not self.ended_ns:
                    watcher.prove()

    def _flush_all(self) -> None:
        """Flush all files periodically until the end; runs in a thread.

        The thread is separate so that a terminal that blocks output does not delay writes.
        """
        while not self._ending.wait(_FLUSH_S):
            for file in self._files:
                file.flush()

    def state(self) -> RecordingProgress:
        """Return the progress of the recording."""
        return RecordingProgress(
            statuses={watch.title: watch.status for watch in self.watched()},
            samples=self._usage.samples if self._usage else 0,
            usage_problem=self._usage.problem if self._usage else "",
        )

    def goes_on(self) -> bool:
        """Return whether the recording can continue: no fatal failure, not everything refused."""
        return not self.broken() and not is_over(self.watched())

    def watched(self) -> list[Watched]:
        """Return all resources with the state of their watchers."""
        return [
            Watched(resource=watcher.resource, status=watcher.status, unreadable=watcher.unreadable)
            for watcher in self._watchers
        ]

    def hint(self) -> str:
        """Return how to record namespaces if kinds are forbidden at the cluster scope, or "".

        The example is the namespace of the kubeconfig's context, or of the service account.
        """
        if not is_forbidden_at_cluster_scope(self.watched()):
            return ""
        name = self._api.namespace
        example = (
            f"-n {name} (kubectl's default here)" if is_namespace_name(name) else "-n NAMESPACE"
        )
        return f"record only the namespaces that the user may read: {example}"

    def all_refused(self) -> AllRefusedError:
        """Return the error of a recording whose resources are all refused."""
        watched = self.watched()
        in_namespaces = [watch for watch in watched if watch.resource.namespace]
        refusals = (watch.status.refused for watch in in_namespaces or watched)
        error = AllRefusedError(next(filter(None, refusals), ""))
        error.advice = "Give the user the ClusterRole of docs/record.md"
        if in_namespaces:
            error.advice = "Give the user the Role of docs/record.md in these namespaces"
        elif hint := self.hint():
            error.advice += f", or {hint}"
        return error

    def broken(self) -> str:
        """Return the failure that ends the recording, or ""."""
        if failed := self._failed_file():
            return str(failed)
        return next(
            (watcher.status.broken for watcher in self._watchers if watcher.status.broken), ""
        )

    @property
    def is_disk(self) -> bool:
        """Return whether `broken` is a failure of the disk that holds the folder."""
        return isinstance(self._failed_file(), OutputError)

    def _failed_file(self) -> ReplayError | None:
        failed = (unwritable(file.path, file.failure) for file in self._files if file.failure)
        return next(failed, None)

    def without_end(self, shown: Callable[[str], str]) -> list[tuple[str, int, str]]:
        """Return (title, complete until, reason) of resources that are not complete to the end."""
        return without_end(self.watched(), shown)

    def notes(self, shown: Callable[[str], str]) -> list[tuple[str, str]]:
        """Return (missing data, reason) of the recording; `shown` formats a namespace's name."""
        result = [
            (
                f"namespace {shown(namespace)} is not recorded",
                "it does not exist; check --namespace",
            )
            for namespace in self._absent
        ]
        if self._usage is not None and (silent := self._usage.silent()):
            result.append(
                (f"nodes without recorded usage ({len(silent):,})", ", ".join(silent[:5]))
            )
        for namespace, why in self._chosen.refused.items():
            what = f"no kubelet evicts the pods of namespace {shown(namespace)} for their usage"
            result.append((what, why))
        return result + missing(self.watched(), shown)
