"""Makes recordings of simulated API servers, for tests."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from replay.kube.kinds import RESOURCES, Resource
from replay.record.api import ApiServer
from replay.record.backoff import Backoff
from replay.record.connect import server_version
from replay.record.coverage import resources_in
from replay.record.frames import RecordingFolder
from replay.record.kubeconfig import Access
from replay.record.recorded_trace import trace_of
from replay.record.recorder import RecorderSettings, RecordingProgress
from replay.record.session import RecordingResult, record
from replay.record.usage_sources import choose_source
from reprieve.trace.v1beta1.trace_pb2 import ImportIssue, Record
from tests.api_server import ApiServerDouble, Raw, Script

PATHS = {resource.kind: resource.path for resource in RESOURCES}
SECONDS_MAX = 120.0


def event(type_: str, raw: Raw) -> Raw:
    """Return a watch's event."""
    return {"type": type_, "object": raw}


def gone() -> Raw:
    """Return the event that says that a resourceVersion is too old."""
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    return event("ERROR", status)


def cluster(**scripts: Script) -> dict[str, Script]:
    """Return the scripts of all resources by path; those that are not named (by kind) are empty."""
    return {path: scripts.get(kind, Script()) for kind, path in PATHS.items()}


def namespaced(namespace: str, **scripts: Script) -> dict[str, Script]:
    """Return the scripts of all namespaced resources in a namespace, as `cluster` does."""
    return {
        resource.path: scripts.get(resource.kind, Script())
        for resource in resources_in([namespace], RESOURCES)
        if resource.namespace
    }


def readable(*namespaces: str, beside: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the paths that a role in some namespaces allows, with others `beside` them.

    As the role of docs/record.md, it allows a namespace to be read, and its pods' metrics.
    """
    groups = dict.fromkeys(resource.path.rpartition("/")[0] for resource in RESOURCES)
    metrics = "/apis/metrics.k8s.io/v1beta1"
    own = [
        f"{group}/namespaces/{namespace}"
        for group in [*groups, metrics]
        for namespace in namespaces
    ]
    return ("/version", *own, *beside)


def access(server: ApiServerDouble) -> Access:
    """Return how a server is reached by who needs no credentials."""
    return Access(name="a test", server=server.url)


def recorded(
    server: ApiServerDouble,
    folder: Path,
    *,
    options: RecorderSettings | None = None,
    usage: str = "off",
    samples: int = 0,
    how: Access | None = None,
) -> RecordingResult:
    """Record until all that the server has was heard, and usage was sampled so many times."""
    api = ApiServer(how or access(server), time.time_ns)
    began = time.monotonic()

    def keep_going(state: RecordingProgress) -> bool:
        time.sleep(0.002)
        assert time.monotonic() - began < SECONDS_MAX, (state, server.lines)
        lines = sum(status.lines for status in state.statuses.values())
        done = state.listed == len(state.statuses) and state.samples >= samples
        return not (done and server.is_told(lines))

    return record(
        api,
        RecordingFolder.create(folder),
        choose_source(usage, api, options.namespaces if options else ()),
        version=server_version(api),
        options=options or fast(),
        now_ns=time.time_ns,
        keep_going=keep_going,
    )


def quick() -> Backoff:
    """Return a back-off that hardly waits."""
    return Backoff(initial_s=0.001, limit_s=0.004)


def fast(**others: object) -> RecorderSettings:
    """Return options that wait for nothing."""
    return RecorderSettings(backoff=quick, usage_every_s=0.002, **others)  # type: ignore[arg-type] # tests name them


def trace(server: ApiServerDouble, folder: Path, **how: object) -> list[Record]:
    """Record and return the trace."""
    recorded(server, folder, **how)  # type: ignore[arg-type] # as above
    return list(trace_of(RecordingFolder(folder)))


def issues_found(records: Iterable[Record]) -> list[str]:
    """Return the kinds of a trace's issues."""
    return [issue.kind for issue in issues(records)]


def issues(records: Iterable[Record]) -> list[ImportIssue]:
    """Return a trace's issues."""
    return [record.issue for record in records if record.HasField("issue")]


def resource(kind: str) -> Resource:
    """Return a resource by its kind."""
    return next(resource for resource in RESOURCES if resource.kind == kind)
