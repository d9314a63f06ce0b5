"""No message is larger than the contract allows, so that gRPC's own limit of 4 MiB never shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.backends.services import SchedulerService
from replay.errors import ConfigurationError
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.parts import MESSAGE_BYTES_MAX
from tests.builders import make_node
from tests.e2e.commands import reprieve
from tests.e2e.faults import Between
from tests.e2e.replays import run

NODES, IMAGES, PODS = 2000, 50, 300


def node(number: int, images: int = IMAGES) -> KubernetesObject:
    """Return a node that holds images."""
    made = make_node(f"node-{number:04d}").capacity(cpu="8", memory="32Gi")
    for image in range(images):
        name = f"registry.example/team-{image % 7}/service-{image:03d}"
        digest = f"@sha256:{image:064x}"
        made.image(10**8, f"{name}{digest}", f"{name}:v1")
    return KubernetesObject(node=made.message())


def records() -> Iterator[trace_pb2.Record]:
    """Yield nodes with many images, and pods that come at once."""
    yield trace_pb2.Record(sequence=1, header=trace_pb2.Header(format_version=2))
    for number in range(NODES):
        yield trace_pb2.Record(sequence=2 + number, create=node(number))
    for number in range(PODS):
        record = trace_pb2.Record(sequence=2 + NODES + number)
        pod = record.pod_create.pod
        pod.metadata.name = f"pod-{number:03d}"
        pod.metadata.namespace = "default"
        pod.spec.containers.add(
            name="c", image=f"registry.example/team-0/service-{number % 60:03d}"
        )
        yield record


def test_two_thousand_nodes_with_fifty_images_each(
    services: EmbeddedServices, tmp_path: Path
) -> None:
    """Both ways, between replay and scheduler: 23 MiB of nodes, in messages of two at most."""
    whole = sum(node(number).ByteSize() for number in range(NODES))
    assert whole > 4 * MESSAGE_BYTES_MAX
    answer = scheduler_service_pb2.RunRoundResponse
    proxy = Between(services.addresses["scheduler"], "StreamingRunRound", answer)
    try:
        behind = EmbeddedServices()
        behind.addresses = {**services.addresses, "scheduler": proxy.address}
        finished = run(behind, records(), tmp_path / "run")
    finally:
        proxy.close()
    decided = [entry.observed.WhichOneof("observed") for entry in finished.run.decisions()]
    assert decided.count("scheduled") == PODS
    assert MESSAGE_BYTES_MAX / 4 < proxy.largest <= MESSAGE_BYTES_MAX


def test_every_verdict_about_many_nodes(services: EmbeddedServices, tmp_path: Path) -> None:
    """What is read of a session comes in parts; `explain` shows the whole."""
    answer = scheduler_service_pb2.RunRoundResponse
    proxy = Between(services.addresses["scheduler"], "StreamingRunRound", answer)
    try:
        behind = EmbeddedServices()
        behind.addresses = {**services.addresses, "scheduler": proxy.address}
        run(behind, records(), tmp_path / "run")
        done = reprieve(tmp_path, "explain", "pod-000", "run", "--scheduler", proxy.address)
        assert f"{NODES:,}" in done.stdout
    finally:
        proxy.close()
    assert proxy.largest <= MESSAGE_BYTES_MAX


def test_an_object_that_no_message_can_hold_is_refused(here: EmbeddedServices) -> None:
    """Its size and the bound are named."""
    scheduler = SchedulerService(here.addresses["scheduler"], scheduler_pb2.SchedulerConfig())
    try:
        event = scheduler_pb2.Event(time_ns=1, add=node(0, 30_000))
        with pytest.raises(ConfigurationError, match=r"an object of .* bytes at 1 ns"):
            scheduler.send_round(scheduler_pb2.Round(time_ns=1, events=[event]))
    finally:
        scheduler.close()


def test_events_that_waited_are_sent_in_parts_at_their_own_times(here: EmbeddedServices) -> None:
    """No event lies before the part that precedes its own."""
    scheduler = SchedulerService(here.addresses["scheduler"], scheduler_pb2.SchedulerConfig())
    try:
        events = [
            scheduler_pb2.Event(time_ns=at_ns, add=node(at_ns, 200)) for at_ns in range(1, 300)
        ]
        round_ = scheduler_pb2.Round(time_ns=1000, events=events, max_pods=1)
        assert round_.ByteSize() > 2 * MESSAGE_BYTES_MAX
        scheduler.send_round(round_)
        assert not scheduler.receive_outcomes().outcomes
        scheduler.send_round(scheduler_pb2.Round(time_ns=1000, max_pods=1))
        assert not scheduler.receive_outcomes().outcomes
    finally:
        scheduler.close()
