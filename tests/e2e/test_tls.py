"""The services and the replay over TLS, each side with a certificate of one authority."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme

from replay.backends.processes import ServiceProcess, Starter
from replay.backends.services import SchedulerService
from replay.errors import BackendError
from replay.importers.registry import open_trace
from replay.runner import ReplaySettings, run_replay
from replay.world.models import Models
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.rpc.client import ClientTls, channel
from services.rpc.health_check import why_not_serving
from tests.e2e.replays import DEMOS, NO_SPANS

pytestmark = pytest.mark.e2e
NGINX = DEMOS / "nginx-preemption.jsonl"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ClientTls:
    """Return an authority and a certificate of it for this machine, as files."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    return ClientTls(
        authority=folder / "ca.pem", certificate=folder / "cert.pem", key=folder / "key.pem"
    )


@pytest.fixture(scope="module")
def scheduler(tls: ClientTls) -> Iterator[str]:
    """Return the address of a scheduler that speaks TLS only, with a queue that does too."""
    files = [str(each) for each in (tls.certificate, tls.key, tls.authority)]
    listen = [
        item
        for pair in zip(("--tls-cert", "--tls-key", "--tls-client-ca"), files, strict=True)
        for item in pair
    ]
    queue_tls = [
        item
        for pair in zip(
            ("--queue-tls-cert", "--queue-tls-key", "--queue-tls-ca"), files, strict=True
        )
        for item in pair
    ]
    with ExitStack() as stack:
        starter = Starter()
        stack.callback(starter.wait)
        queue = ServiceProcess(starter, "queue", *listen)
        stack.callback(queue.stop)
        address = queue.wait_listening()
        process = ServiceProcess(starter, "scheduler", "--queue", address, *listen, *queue_tls)
        stack.callback(process.stop)
        yield process.wait_listening()


def test_a_replay_goes_through_services_that_speak_tls(
    tls: ClientTls, scheduler: str, tmp_path: Path
) -> None:
    """From the replay to the scheduler, and from there to its queue."""
    settings = ReplaySettings(
        version="test",
        scheduler_address=scheduler,
        tls=tls,
        models=Models(eviction=False),
        run_path=tmp_path / "run",
        sampling=NO_SPANS,
    )
    records = open_trace([NGINX])
    finished = run_replay(settings, iter(records), lambda _now_ns, _cluster, _tally: None)
    assert finished.summary.decided.bound > 0


def test_who_shows_no_certificate_is_turned_away(tls: ClientTls, scheduler: str) -> None:
    """In plain text, and with the authority alone."""
    for shown in (ClientTls(), ClientTls(authority=tls.authority)):
        with pytest.raises(BackendError, match="opened no session"):
            SchedulerService(scheduler, scheduler_pb2.SchedulerConfig(), shown)


def test_a_health_check_speaks_tls(tls: ClientTls, scheduler: str) -> None:
    """With the same files."""
    with channel(scheduler, tls) as opened:
        assert why_not_serving(opened, service="", timeout_s=20) is None
