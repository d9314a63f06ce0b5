"""What a replay and its services send to a real receiver of OTLP, over gRPC and over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from replay.results.run.directory import RunDirectory
from services.kube.time import SECOND_NS
from services.telemetry.span import SpanKind
from tests.e2e.commands import environment, reprieve
from tests.e2e.replays import DEMOS, ROOT
from tests.e2e.services_with_metrics import documented_metrics
from tests.otlp.receiver import Receiver, Span, installed_receiver, running_receiver

pytestmark = pytest.mark.languages
NGINX = str(DEMOS / "nginx-preemption.jsonl")
SERVICES = ("queue", "scheduler", "eviction")
SERVER = "SPAN_KIND_SERVER"


@dataclass(frozen=True, slots=True)
class Observed:
    """What a receiver got of a replay; its run, and a run of the same with a file of spans."""

    receiver: Receiver
    sent: RunDirectory
    written: RunDirectory

    def named(self, name: str, key: str = "", value: str = "") -> Span:
        """Return the one span with a name and, if set, an attribute."""
        (found,) = (
            span
            for span in self.receiver.spans()
            if span.name == name and span.attributes.get(key, "") == value
        )
        return found


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the receiver, once for both protocols."""
    return installed_receiver(tmp_path_factory.mktemp("otlp"))


@pytest.fixture(scope="module", params=["grpc", "http/protobuf"])
def observed(
    request: pytest.FixtureRequest, program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Observed]:
    """Replay with three services that send everything to the receiver, and end them."""
    folder = tmp_path_factory.mktemp("observed")
    with running_receiver(program, folder) as receiver:
        variables = receiver.environment(request.param)
        with ExitStack() as stack:
            queue = start(stack, "queue", variables)
            scheduler = start(stack, "scheduler", variables, "--queue", queue, "--no-warm-up")
            to = ("--scheduler", scheduler, "--eviction", start(stack, "eviction", variables))
            replay = ("replay", NGINX, "--no-report", "--quiet", *to)
            reprieve(folder, *replay, "--run", "written")
            endpoint = receiver.endpoints[request.param]
            reprieve(
                folder,
                *(*replay, "--run", "sent"),
                OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
                OTEL_EXPORTER_OTLP_PROTOCOL=request.param,
            )
        runs = (RunDirectory.open(folder / name) for name in ("sent", "written"))
        yield Observed(receiver, *runs)


def start(stack: ExitStack, service: str, variables: dict[str, str], *options: str) -> str:
    """Start a service until `stack` ends, which waits until it has ended; return its address."""
    command = (sys.executable, "-m", f"services.{service}", "--listen", "127.0.0.1:0", *options)
    more = {"REPRIEVE_LOG_LEVEL": "info", **variables}
    process = stack.enter_context(
        subprocess.Popen(command, cwd=ROOT, env=environment(**more), stdout=subprocess.PIPE)
    )
    stack.callback(process.terminate)
    assert process.stdout is not None
    return process.stdout.readline().decode().split()[-1]


def plain(value: dict[str, Any]) -> Any:
    """Return an attribute's value in a file of spans, as the receiver shows it."""
    ((kind, held),) = value.items()
    return [plain(value) for value in held["values"]] if kind == "arrayValue" else held


def as_written(span: dict[str, Any]) -> Span:
    """Return a span of a run's file as if it had arrived."""
    return Span(
        resource={},
        scope={},
        name=span["name"],
        kind=f"SPAN_KIND_{SpanKind(span['kind']).name}",
        trace_id=span["traceId"],
        span_id=span["spanId"],
        parent_id=span.get("parentSpanId", ""),
        attributes={
            attribute["key"]: plain(attribute["value"]) for attribute in span["attributes"]
        },
        links=tuple((link["traceId"], link["spanId"]) for link in span.get("links", ())),
        status=span.get("status", {}),
        start_ns=int(span["startTimeUnixNano"]),
        end_ns=int(span["endTimeUnixNano"]),
    )


def of_pods(spans: Iterable[Span]) -> list[tuple[object, ...]]:
    """Return the spans of pods' traces without what differs between two runs.

    Wall time decides the number of messages to the services, too, and with it the ids within the
    run's own trace. Numbers are texts, as they arrive over gRPC.
    """
    every = list(spans)
    (run,) = (span.trace_id for span in every if span.name == "replay")
    return sorted(
        (
            *(sent.trace_id, sent.span_id, sent.parent_id, sent.name, sent.kind),
            *(sent.start_ns, sent.end_ns, sent.status.get("message") or ""),
            [(trace, span) if trace != run else trace for trace, span in sent.links],
            [
                (key, value if isinstance(value, list) else str(value))
                for key, value in sorted(sent.attributes.items())
                if "wall_ns" not in key
            ],
        )
        for sent in every
        if sent.trace_id != run
    )


def test_every_span_arrives_as_the_runs_own_file_has_it(observed: Observed) -> None:
    """With ids, parent, links, attributes and times; and the summary counts them."""
    arrived = [span for span in observed.receiver.spans() if span.service == "reprieve"]
    written = [
        as_written(span)
        for line in observed.written.spans()
        for scope in line["resourceSpans"][0]["scopeSpans"]
        for span in scope["spans"]
    ]
    assert of_pods(arrived) == of_pods(written)
    counted = json.loads((observed.sent.path / "summary.json").read_text("utf-8"))["spans"]
    assert counted["ended"] == counted["delivered"] == len(arrived) > 30


def test_a_search_for_the_preemptor_finds_one_trace_that_ends_with_its_victim(
    observed: Observed,
) -> None:
    """Its waits with their reasons, its victims with their ends, and its binding."""
    pod = observed.named("Pod", "k8s.pod.name", "nginx-a")
    trace = [span for span in observed.receiver.spans() if span.trace_id == pod.trace_id]
    by_id = {record.span_id: record for record in trace}
    assert pod.parent_id == ""
    assert {record.parent_id for record in trace} - {""} <= set(by_id)
    steps = [
        (record.name, *((at - pod.start_ns) / SECOND_NS for at in (record.start_ns, record.end_ns)))
        for record in trace
        if record.span_id != pod.span_id
    ]
    assert sorted(steps, key=lambda step: step[1:]) == [
        ("queue.wait", 0, 0),
        ("schedulingCycle", 0, 0),
        ("preemption", 0, 0),
        ("Terminating", 0, 2),
        ("queue.wait", 0, 2),
        ("schedulingCycle", 2, 2),
        ("bindingCycle", 2, 2),
        ("Running", 4, 12),
    ]
    preemption, ending = observed.named("preemption"), observed.named("Terminating")
    victim = observed.named("Pod", "reprieve.preempted_by", "default/nginx-a")
    name = victim.attributes["k8s.pod.name"]
    assert preemption.attributes["reprieve.victims"] == [f"default/{name}"]
    assert preemption.attributes["k8s.node.name"] == "test-worker"
    assert (ending.parent_id, ending.attributes["k8s.pod.name"]) == (preemption.span_id, name)
    assert ending.attributes["reprieve.end"] == victim.attributes["reprieve.end"]
    to_victim = ((victim.trace_id, victim.span_id),)
    assert preemption.links == ending.links == to_victim
    assert victim.links == ((pod.trace_id, pod.span_id),)


def test_the_services_spans_are_requests_within_the_runs_trace(observed: Observed) -> None:
    """Of the kind, with the status and from the instance that the specification asks for."""
    run = observed.named("replay")
    spans = observed.receiver.spans()
    assert {span.kind for span in spans if span.service == "reprieve"} == {"SPAN_KIND_INTERNAL"}
    of_services = [span for span in spans if span.service != "reprieve"]
    assert {span.service for span in of_services} == {f"reprieve-{service}" for service in SERVICES}
    known = {span.span_id for span in spans if span.trace_id == run.trace_id}
    for sent in of_services:
        assert (sent.trace_id, sent.kind) == (run.trace_id, SERVER)
        assert sent.parent_id in known
        assert int(sent.attributes["rpc.grpc.status_code"]) == 0
        assert sent.start_ns < sent.end_ns
    resources = {span.service: span.resource for span in spans}
    instances = {resource["service.instance.id"] for resource in resources.values()}
    assert len(instances) == len(resources) == 4
    versions = {resource["service.version"] for resource in resources.values()}
    assert versions == {span.scope["version"] for span in spans}


def test_the_documented_metrics_arrive(observed: Observed) -> None:
    """Also without --metrics; seconds and bytes have their units."""
    metrics = observed.receiver.metrics()
    documented = documented_metrics()
    for service in SERVICES:
        names = documented[service]
        found = {
            name: metric
            for name, metric in metrics[f"reprieve-{service}"].items()
            if not name.startswith("process_")
        }
        assert set(found) == names
        units = {name: metric.get("unit") or "" for name, metric in found.items()}
        assert units == {name: "s" if name.endswith("_seconds") else "" for name in names}
    preemptions = metrics["reprieve-scheduler"]["scheduler_preemption_attempts_total"]
    (point,) = preemptions["sum"]["dataPoints"]
    assert point["asDouble"] > 0


def test_log_records_have_the_ids_of_their_requests_spans(observed: Observed) -> None:
    """A session's end is logged within the request that asks for it."""
    spans = {(span.trace_id, span.span_id): span for span in observed.receiver.spans()}
    for service in SERVICES:
        records = [log for name, log in observed.receiver.logs() if name == f"reprieve-{service}"]
        bodies = [record["body"].partition("' ")[2] for record in records]
        assert bodies == ["created; 1 in all", "was deleted; 0 remain"] * 2
        last = records[-1]
        assert spans[last["traceId"], last["spanId"]].service == f"reprieve-{service}"
        assert (last["severityText"], last["severityNumber"]) in (("INFO", 9), ("INFO", "INFO"))
        times = [int(record["timeUnixNano"]) for record in records]
        assert all(before < after for before, after in pairwise(times))
