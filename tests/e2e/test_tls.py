"""Who may come in: services and the replay over TLS, with certificates or with tokens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from replay.backends.processes import ServiceProcess, Starter
from replay.backends.services import SchedulerService
from replay.errors import BackendError
from replay.importers.registry import open_trace
from replay.runner import run_replay
from replay.settings import ReplaySettings
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2
from reprieve.autoscaler.v1beta1.autoscaler_service_pb2_grpc import AutoscalerServiceStub
from reprieve.queue.v1beta1 import queue_service_pb2, queue_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2
from services.rpc.access import ClientTls, read_access
from services.rpc.client import LastingChannel, channel
from services.rpc.health_check import why_not_serving
from services.rpc.identity import token_digest
from tests.e2e.commands import reprieve
from tests.e2e.node_groups import growing
from tests.e2e.replays import DEMOS, NO_SPANS

pytestmark = pytest.mark.e2e
NGINX = DEMOS / "nginx-preemption.jsonl"
TOKEN, OTHER_TOKEN, NEW_TOKEN = "alices-secret", "bobs-secret", "alices-new-secret"
DEADLINE_S = 20.0
DENIED, UNKNOWN = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED


class Files:
    """The files of an authority's certificates, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(str(folder / "ca.crt"))

    def issue(self, name: str, *hosts: str, into: str = "") -> ClientTls:
        """Write a certificate with a common name, its hosts and its key."""
        issued = self._authority.issue_cert(*(hosts or (name,)), common_name=name)
        certificate, key = (self.folder / f"{into or name}.{kind}" for kind in ("crt", "key"))
        certificate.write_bytes(issued.cert_chain_pems[0].bytes())
        key.write_bytes(issued.private_key_pem.bytes())
        key.chmod(0o600)
        return ClientTls(authority=self.folder / "ca.crt", certificate=certificate, key=key)

    def access(self, name: str, text: str) -> str:
        """Write an access file beside them; return its path."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)


@contextlib.contextmanager
def serving(name: str, *arguments: str) -> Iterator[ServiceProcess]:
    """Run a service."""
    with ExitStack() as stack:
        starter = Starter()
        stack.callback(starter.wait)
        process = ServiceProcess(starter, name, *arguments)
        stack.callback(process.stop)
        process.wait_listening()
        starter.close()
        yield process


def log_of(process: ServiceProcess) -> str:
    """Return all that a service wrote to standard error."""
    process._log.seek(0)
    return process._log.read().decode()


def options(tls: ClientTls, names: tuple[str, str, str]) -> list[str]:
    """Return options with the files of `tls`."""
    files = (tls.certificate, tls.key, tls.authority)
    return [
        item
        for pair in zip(names, map(str, files), strict=True)
        for item in (f"--{pair[0]}", pair[1])
    ]


def listening(tls: ClientTls) -> list[str]:
    """Return the options of a service that requires certificates."""
    return options(tls, ("tls-cert", "tls-key", "tls-client-ca"))


class Caller:
    """A caller of a queue."""

    def __init__(self, address: str, tls: ClientTls) -> None:
        self.channel = channel(address, tls)
        self.queue: Any = queue_service_pb2_grpc.QueueServiceStub(self.channel)

    def create(self) -> str:
        """Create a session and return its name."""
        request = queue_service_pb2.CreateSessionRequest()
        return str(self.queue.CreateSession(request, timeout=DEADLINE_S).session_id)

    def delete(self, session: str) -> None:
        """Delete a session."""
        request = session_pb2.DeleteSessionRequest(session_id=session)
        self.queue.DeleteSession(request, timeout=DEADLINE_S)

    def look(self, session: str) -> int:
        """Return the number of parts of a session's state."""
        request = session_pb2.GetStateRequest(stamp=session_pb2.Stamp(session_id=session))
        return len(list(self.queue.GetState(request, timeout=DEADLINE_S)))

    def reflect(self) -> int:
        """Return the number of services that reflection lists."""
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(self.channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        answers = stub.ServerReflectionInfo(iter([request]), timeout=DEADLINE_S)
        return len(next(answers).list_services_response.service)


@contextlib.contextmanager
def refused(code: grpc.StatusCode) -> Iterator[list[str]]:
    """Expect a call to be refused with `code`; the details are in the list afterwards."""
    details: list[str] = []
    with pytest.raises(grpc.RpcError) as error:
        yield details
    assert error.value.code() is code
    details.append(error.value.details() or "")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Return an authority with its folder."""
    return Files(tmp_path)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ClientTls:
    """Return an authority and a certificate of it for this machine, as files."""
    return Files(tmp_path_factory.mktemp("tls")).issue("both", "127.0.0.1")


@pytest.fixture(scope="module")
def scheduler(tls: ClientTls) -> Iterator[str]:
    """Return the address of a scheduler that speaks TLS only, with a queue that does too."""
    queue_tls = options(tls, ("queue-tls-cert", "queue-tls-key", "queue-tls-ca"))
    with (
        serving("queue", *listening(tls)) as queue,
        serving("scheduler", "--queue", queue.address, *listening(tls), *queue_tls) as process,
    ):
        yield process.address


def replayed(scheduler: str, tls: ClientTls, run: Path) -> int:
    """Replay the demo through a scheduler; return the number of bindings."""
    settings = ReplaySettings(
        version="test",
        scheduler_address=scheduler,
        tls=tls,
        no_eviction=True,
        run_path=run,
        sampling=NO_SPANS,
    )
    records = open_trace([NGINX])
    finished = run_replay(settings, lambda: iter(records), lambda _now_ns, _cluster, _tally: None)
    return finished.summary.decided.bound


def test_a_replay_goes_through_services_that_speak_tls(
    tls: ClientTls, scheduler: str, tmp_path: Path
) -> None:
    """From the replay to the scheduler, and from there to its queue."""
    assert replayed(scheduler, tls, tmp_path / "run") > 0


def test_who_shows_no_certificate_is_turned_away(tls: ClientTls, scheduler: str) -> None:
    """In plain text, and with the authority alone."""
    for shown in (ClientTls(), ClientTls(authority=tls.authority)):
        with pytest.raises(BackendError, match="opened no session"):
            SchedulerService(scheduler, scheduler_pb2.SchedulerConfig(), shown)


def test_a_certificate_of_another_authority_is_turned_away(
    tls: ClientTls, scheduler: str, tmp_path: Path
) -> None:
    """It trusts the server, and the server does not trust it."""
    foreign = Files(tmp_path).issue("both", "127.0.0.1")
    shown = ClientTls(authority=tls.authority, certificate=foreign.certificate, key=foreign.key)
    with pytest.raises(BackendError, match="opened no session"):
        SchedulerService(scheduler, scheduler_pb2.SchedulerConfig(), shown)


def test_a_health_check_speaks_tls(tls: ClientTls, scheduler: str) -> None:
    """With the same files."""
    with channel(scheduler, tls) as opened:
        assert why_not_serving(opened, service="", timeout_s=20) is None


def test_reflection_is_off_under_tls(tls: ClientTls, scheduler: str) -> None:
    """Unless it is requested."""
    with refused(grpc.StatusCode.UNIMPLEMENTED):
        Caller(scheduler, tls).reflect()


def test_an_access_file_says_who_may_drive_and_who_may_look(files: Files) -> None:
    """By DNS name, SPIFFE URI or a listed common name; everyone may request the health."""
    server = files.issue("queue", "127.0.0.1", into="tls")
    text = (
        "certificate: tls.crt\nkey: tls.key\nauthority: ca.crt\n"
        'services: {queue: {drive: ["cn:replay", other.example], look: [ops.example]}}\n'
    )
    access = files.access("access.yaml", text)
    assert server.certificate == read_access(Path(access)).certificate
    with serving("queue", "--access", access, "--reflection") as process:
        callers = {
            name: Caller(process.address, files.issue(name, host))
            for name, host in (
                ("replay", "replay.example"),
                ("another", "other.example"),
                ("ops", "ops.example"),
                ("stranger", "stranger.example"),
                ("other.example", "mallory.example"),
            )
        }
        session = callers["replay"].create()
        assert callers["replay"].look(session) > 0
        assert callers["ops"].look(session) > 0
        with refused(DENIED) as details:
            callers["ops"].create()
        assert "'ops.example' may not drive the queue service" in details[0]
        with refused(DENIED):
            callers["ops"].delete(session)
        for act in (callers["another"].delete, callers["another"].look, callers["stranger"].look):
            with refused(DENIED):
                act(session)
        assert callers["ops"].reflect() > 0
        with refused(DENIED):
            callers["stranger"].reflect()
        with refused(DENIED) as named_by_its_common_name:
            callers["other.example"].create()
        assert "'mallory.example' may not drive" in named_by_its_common_name[0]
        assert not why_not_serving(callers["stranger"].channel, service="", timeout_s=DEADLINE_S)
        callers["replay"].delete(session)


def tokens(files: Files, **names: str) -> str:
    """Write the access file of a queue that accepts tokens; return its path."""
    digests = ", ".join(f"{name}: {token_digest(token)}" for name, token in names.items())
    return files.access(
        "server.yaml",
        f"certificate: tls.crt\nkey: tls.key\ntokens: {{{digests}}}\n"
        "services: {queue: {drive: [token:alice], look: [token:bob]}}\n",
    )


def test_tokens_say_who_may_drive_and_who_may_look(files: Files) -> None:
    """A token file that changes is used for the next call; a revoked token is refused at once."""
    files.issue("queue", "127.0.0.1", into="tls")
    token = files.folder / "token"
    token.write_text(f"{TOKEN}\n", encoding="ascii")
    client = files.access("client.yaml", "authority: ca.crt\ntoken: token\n")
    tls = read_access(Path(client)).client(insecure=False)
    with serving("queue", "--access", tokens(files, alice=TOKEN, bob=OTHER_TOKEN)) as process:
        caller = Caller(process.address, tls)
        session = caller.create()
        with refused(UNKNOWN):
            Caller(process.address, ClientTls(authority=tls.authority)).create()
        token.write_text(OTHER_TOKEN, encoding="ascii")
        assert caller.look(session) > 0
        with refused(DENIED) as denied:
            caller.create()
        tokens(files, alice=NEW_TOKEN)
        with refused(UNKNOWN) as revoked:
            caller.look(session)
        token.write_text(NEW_TOKEN, encoding="ascii")
        caller.delete(session)
        seen = log_of(process) + denied[0] + revoked[0]
    assert not [token for token in (TOKEN, OTHER_TOKEN, NEW_TOKEN) if token in seen]


def test_a_scheduler_uses_its_access_file_for_its_queue_too(files: Files, tmp_path: Path) -> None:
    """The queue knows it by its own certificate; the replay may not drive the queue."""
    accesses: Mapping[str, str] = {}
    rights = "services: {queue: {drive: [scheduler]}, scheduler: {drive: [replay]}}"
    for name in ("queue", "scheduler", "replay"):
        files.issue(name, name, "127.0.0.1")
        text = f"certificate: {name}.crt\nkey: {name}.key\nauthority: ca.crt\n{rights}\n"
        accesses = {**accesses, name: files.access(f"{name}.yaml", text)}
    tls = read_access(Path(accesses["replay"])).client(insecure=False)
    with (
        serving("queue", "--access", accesses["queue"]) as queue,
        serving(
            "scheduler", "--access", accesses["scheduler"], "--queue", queue.address
        ) as scheduler,
    ):
        assert replayed(scheduler.address, tls, tmp_path / "run") > 0
        with refused(DENIED):
            Caller(queue.address, tls).create()


def test_renewed_files_are_used_without_a_restart(tmp_path: Path) -> None:
    """By new connections; a broken file keeps the previous one, and the log says so once."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "used").mkdir()
    old, new = Files(tmp_path / "old"), Files(tmp_path / "new")
    before, after = (authority.issue("both", "127.0.0.1", into="tls") for authority in (old, new))
    used = tmp_path / "used"

    def use(files: Files) -> None:
        for path in files.folder.iterdir():
            path.rename(used / path.name)

    copies = {
        authority: [path.read_bytes() for path in sorted(authority.folder.iterdir())]
        for authority in (old, new)
    }
    use(old)
    tls = ClientTls(authority=used / "ca.crt", certificate=used / "tls.crt", key=used / "tls.key")
    with serving("queue", *listening(tls)) as process:
        held = Caller(process.address, tls)
        session = held.create()
        (used / "tls.crt").write_text("broken", encoding="ascii")
        for name, data in zip(("ca.crt", "tls.crt", "tls.key"), copies[old], strict=True):
            (old.folder / name).write_bytes(data)
        for _ in range(2):
            with channel(process.address, before) as opened:
                assert not why_not_serving(opened, service="", timeout_s=DEADLINE_S)
        assert log_of(process).count("the previous files stay in use") == 1
        use(new)
        for name, data in zip(("ca.crt", "tls.crt", "tls.key"), copies[new], strict=True):
            (new.folder / name).write_bytes(data)
        with channel(process.address, after) as opened:
            assert not why_not_serving(opened, service="", timeout_s=DEADLINE_S)
        with channel(process.address, before) as opened:
            assert why_not_serving(opened, service="", timeout_s=2)
        held.delete(session)


def test_a_lasting_channel_is_replaced_when_its_files_change(files: Files) -> None:
    """As a scheduler's to its queue: the certificate that it shows is renewed, too."""

    async def names() -> list[bool]:
        lasting = LastingChannel("127.0.0.1:1", files.issue("client"))
        first = lasting.current()
        same = lasting.current() is first
        files.issue("client")
        replaced = lasting.current() is not first
        (files.folder / "client.key").write_text("broken", encoding="ascii")
        kept = lasting.current() is not first
        await lasting.close()
        return [same, replaced, kept]

    assert asyncio.run(names()) == [True, True, True]


def test_an_access_file_says_who_drives_the_autoscaler(tmp_path: Path) -> None:
    """A replay over mutual TLS does, one who may look sees the state, and others nothing."""
    files = Files(tmp_path)
    files.issue("autoscaler", "localhost", "127.0.0.1")
    names = "certificate: {0}.crt\nkey: {0}.key\nauthority: ca.crt\n"
    rights = "services:\n  autoscaler: {drive: [replay.example], look: [ops.example]}\n"
    access = files.access("autoscaler.yaml", names.format("autoscaler") + rights)
    driver, viewer, other = map(files.issue, ("replay.example", "ops.example", "x.example"))
    caller = files.access("replay.yaml", names.format("replay.example"))
    with serving("autoscaler", "--access", access) as process:

        def stub(tls: ClientTls) -> Any:
            return AutoscalerServiceStub(channel(process.address, tls))

        create = autoscaler_service_pb2.CreateSessionRequest()
        session = stub(driver).CreateSession(create, timeout=DEADLINE_S).session_id
        look = session_pb2.GetStateRequest(stamp=session_pb2.Stamp(session_id=session))
        assert list(stub(viewer).GetState(look, timeout=DEADLINE_S))
        for tls in (viewer, other):
            with refused(DENIED):
                stub(tls).CreateSession(create, timeout=DEADLINE_S)
        replay = ("replay", *growing(tmp_path), "--run", "run", "--no-report", "--quiet")
        service = ("--autoscaler-service", process.address, "--access", caller)
        reprieve(tmp_path, *replay, *service)
    assert b"scaledUp" in (tmp_path / "run" / "decisions.jsonl").read_bytes()
