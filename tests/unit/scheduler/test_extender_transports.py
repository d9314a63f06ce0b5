"""How extenders are reached: gRPC, TLS, and what a configuration may say of both."""

# ruff: noqa: ARG002, D102, N802 - gRPC's names and arguments; the proto says what a method does

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from google.protobuf.empty_pb2 import Empty

from reprieve.scheduler.v1beta1 import extender_service_pb2 as service_pb2
from reprieve.scheduler.v1beta1 import extender_service_pb2_grpc
from services.framework.preemption.candidates import Candidate
from services.framework.preemption.outcome import ExtenderError
from services.rpc.errors import FieldError
from services.scheduler.config.extenders import ExtenderConfig, TlsConfig
from services.scheduler.core.cycle.extenders import FilterAnswer, NodeVictims
from services.scheduler.extenders.allowed import ANY, FILE_BYTES_MAX, AllowedExtenders
from services.scheduler.extenders.connect import ConnectedExtender, connect_extenders
from services.scheduler.extenders.grpc_extender import ExtenderObjects
from tests.builders import make_node, make_pod

POD = make_pod("p").label("app", "x").obj()
NODES = [make_node("a").obj(), make_node("b").obj()]


def extender_of(config: ExtenderConfig, *files: str) -> ConnectedExtender:
    """Return the extender of a configuration, which may name these files."""
    allowed = AllowedExtenders(ANY, files)
    (made,) = connect_extenders([config], allowed, ExtenderObjects(), "extenders")
    return made


class Extender(extender_service_pb2_grpc.ExtenderServiceServicer):
    """Keeps the last node, scores it, spares every second victim; its mood breaks each call."""

    mood = ""

    def _act(self, context: grpc.ServicerContext) -> None:
        if self.mood == "slow":
            time.sleep(0.5)
        if self.mood == "broken":
            context.abort(grpc.StatusCode.INTERNAL, "broken")
        if self.mood == "unlicensed":
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no licence")

    def Filter(
        self, request: service_pb2.FilterRequest, context: grpc.ServicerContext
    ) -> service_pb2.FilterResponse:
        self._act(context)
        names = [*request.node_names, *(node.metadata.name for node in request.nodes)]
        if self.mood == "lying":
            return service_pb2.FilterResponse(node_names=["ghost"])
        return service_pb2.FilterResponse(
            node_names=names[-1:], failed_nodes={names[0]: request.pod.metadata.name}
        )

    def Prioritize(
        self, request: service_pb2.PrioritizeRequest, context: grpc.ServicerContext
    ) -> service_pb2.PrioritizeResponse:
        self._act(context)
        answer = service_pb2.PrioritizeResponse()
        for name, score in (("b", 10), ("a", 1)):
            answer.scores.add(node_name=name, score=score)
        return answer

    def ProcessPreemption(
        self, request: service_pb2.ProcessPreemptionRequest, context: grpc.ServicerContext
    ) -> service_pb2.ProcessPreemptionResponse:
        self._act(context)
        (first,) = request.candidates
        left = service_pb2.CandidateVictims(
            node_name=first.node_name,
            victims=first.victims[:1] if first.pods else first.victims[1:],
            budget_violations=7,
        )
        return service_pb2.ProcessPreemptionResponse(candidates=[left])

    def Bind(self, request: service_pb2.BindRequest, context: grpc.ServicerContext) -> Empty:
        self._act(context)
        said = (
            f"{request.pod.namespace}/{request.pod.name} {request.pod.uid} on {request.node_name}"
        )
        context.abort(grpc.StatusCode.ABORTED, said)


@contextmanager
def over_grpc(
    config: ExtenderConfig, mood: str = "", tls: trustme.CA | None = None
) -> Iterator[ConnectedExtender]:
    """Serve an extender over gRPC, and yield it connected."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    servicer = Extender()
    servicer.mood = mood
    extender_service_pb2_grpc.add_ExtenderServiceServicer_to_server(servicer, server)
    if tls is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        issued = tls.issue_cert("extender.example")
        chain = (issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes())
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([chain]))
    server.start()
    values: dict[str, Any] = {
        name: getattr(config, name) for name in ExtenderConfig.__dataclass_fields__
    }
    try:
        made = extender_of(ExtenderConfig(**values | {"url_prefix": f"grpc://127.0.0.1:{port}"}))
        with closing(made):
            yield made
    finally:
        server.stop(None)


ALL = ExtenderConfig(
    filter_verb="f", prioritize_verb="p", preempt_verb="e", bind_verb="b", weight=1
)


@pytest.mark.parametrize("by_name", [False, True])
def test_every_call_goes_over_grpc(by_name: bool) -> None:
    """With whole objects, or with names where the extender knows them."""
    config = ExtenderConfig(
        filter_verb="f", prioritize_verb="p", preempt_verb="e", bind_verb="b", weight=1,
        node_cache_capable=by_name,
    )  # fmt: skip
    victims = (make_pod("v").obj(), make_pod("w").obj())
    with over_grpc(config) as extender:
        assert extender.filter(POD, NODES) == FilterAnswer(passed=("b",), failed={"a": "p"})
        assert extender.prioritize(POD, NODES) == [("b", 10), ("a", 1)]
        answer = extender.process_preemption(POD, [Candidate(node="a", victims=victims)])
        uid = victims[by_name].uid
        assert answer == [NodeVictims(node_name="a", pod_uids=(uid,), budget_violations=7)]
        error = extender.bind(POD, "a")
        assert error is not None
        assert error.message.endswith(f"Bind: answers ABORTED: default/p {POD.uid} on a")


@pytest.mark.parametrize(
    ("mood", "said"),
    [
        ("slow", "Filter: no answer within 0.1 s"),
        ("broken", "Filter: answers INTERNAL"),
        ("unlicensed", "Filter: answers FAILED_PRECONDITION: no licence"),
        ("lying", "Filter: claims a filtered node 'ghost'"),
    ],
)
def test_a_failing_call_over_grpc_is_reported(mood: str, said: str) -> None:
    """With the extender's name, the call and the reason."""
    timeout_ns = 10**8 if mood == "slow" else 5 * 10**9
    with over_grpc(ExtenderConfig(filter_verb="f", timeout_ns=timeout_ns), mood) as extender:
        answer = extender.filter(POD, NODES)
    assert isinstance(answer, ExtenderError)
    assert said in answer.message
    assert extender.terms.name in answer.message


def test_grpc_uses_tls_with_the_configured_authority() -> None:
    """The server's name may be another than its address."""
    authority = trustme.CA()
    data = base64.b64encode(authority.cert_pem.bytes()).decode()
    tls = TlsConfig(server_name="extender.example", ca_data=data)
    with over_grpc(ExtenderConfig(filter_verb="f", tls=tls), tls=authority) as extender:
        assert isinstance(extender.filter(POD, NODES), FilterAnswer)


@contextmanager
def over_https(authority: trustme.CA, *, asks_client: bool) -> Iterator[str]:
    """Serve one answer over https, and yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"NodeNames": ["a"]}).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            """Stay silent."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("extender.example").configure_cert(context)
    if asks_client:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


NO_TLS = TlsConfig()


def https(url: str, tls: TlsConfig = NO_TLS, *, enable: bool = False) -> Any:
    """Ask an extender over https, and return its answer."""
    extender = extender_of(
        ExtenderConfig(
            url_prefix=url, filter_verb="f", node_cache_capable=True, tls=tls, enable_https=enable
        )
    )
    with closing(extender):
        return extender.filter(POD, NODES)


def test_https_checks_the_certificate_unless_configured_otherwise() -> None:
    """With enableHTTPS and without an authority nothing is looked at, as upstream."""
    authority = trustme.CA()
    data = base64.b64encode(authority.cert_pem.bytes()).decode()
    with over_https(authority, asks_client=False) as url:
        assert isinstance(
            https(url, TlsConfig(ca_data=data, server_name="extender.example")), FilterAnswer
        )
        assert isinstance(https(url, TlsConfig(insecure=True)), FilterAnswer)
        assert isinstance(https(url, enable=True), FilterAnswer)
        refused = https(url, TlsConfig(ca_data=data))
        assert isinstance(refused, ExtenderError)
        assert "TLS failed" in refused.message


def test_https_shows_a_certificate_of_its_own() -> None:
    """Where the server requests one."""
    authority = trustme.CA()
    issued = authority.issue_cert("client.example")
    shown = {
        "cert_data": issued.cert_chain_pems[0].bytes(),
        "key_data": issued.private_key_pem.bytes(),
    }
    texts = {name: base64.b64encode(pem).decode() for name, pem in shown.items()}
    with over_https(authority, asks_client=True) as url:
        assert isinstance(https(url, TlsConfig(insecure=True, **texts)), FilterAnswer)
        assert isinstance(https(url, TlsConfig(insecure=True)), ExtenderError)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (ExtenderConfig(url_prefix="ftp://x"), "extenders[0].urlPrefix"),
        (ExtenderConfig(url_prefix=""), "extenders[0].urlPrefix"),
        (ExtenderConfig(url_prefix="http://x:port"), "extenders[0].urlPrefix"),
        (ExtenderConfig(url_prefix="grpc://x"), "extenders[0].urlPrefix"),
        (
            ExtenderConfig(url_prefix="https://x", tls=TlsConfig(ca_file="/nowhere")),
            "extenders[0].tlsConfig.caFile",
        ),
        (
            ExtenderConfig(url_prefix="https://x", tls=TlsConfig(ca_data="%")),
            "extenders[0].tlsConfig.caData",
        ),
        (
            ExtenderConfig(url_prefix="https://x", tls=TlsConfig(cert_data="eA==")),
            "extenders[0].tlsConfig",
        ),
        (ExtenderConfig(url_prefix="grpc://x:1", enable_https=True), "extenders[0].tlsConfig"),
    ],
)
def test_an_extender_that_cannot_be_reached_so_is_refused(
    config: ExtenderConfig, field: str
) -> None:
    """By the field's path."""
    with pytest.raises(FieldError) as caught:
        extender_of(config)
    assert caught.value.field == field


@pytest.mark.parametrize("name", ["caFile", "certFile", "keyFile"])
def test_a_file_that_the_operator_has_not_listed_is_not_looked_at(
    name: str, tmp_path: Path
) -> None:
    """The refusal is the same whether there is such a file, none, a device or a FIFO."""
    there, fifo = tmp_path / "there.pem", tmp_path / "fifo"
    there.write_text("PEM", encoding="utf-8")
    os.mkfifo(fifo)
    texts: set[str] = set()
    for path in (there, tmp_path / "nowhere.pem", fifo, Path("/dev/zero"), tmp_path):
        named: dict[str, Any] = {name.replace("File", "_file"): str(path)}
        tls = replace(NO_TLS, **named)
        config = ExtenderConfig(url_prefix="https://x", filter_verb="f", tls=tls)
        with pytest.raises(FieldError) as caught:
            extender_of(config, str(tmp_path / "listed.pem"))
        assert caught.value.field == f"extenders[0].tlsConfig.{name}"
        texts.add(str(caught.value))
    assert len(texts) == 1
    assert "--extender-file" in texts.pop()


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "large", "nowhere"])
def test_a_listed_file_is_read_within_bounds(kind: str, tmp_path: Path) -> None:
    """A regular file of a sensible size; a FIFO does not hold the service up."""
    path = Path("/dev/zero") if kind == "device" else tmp_path / "ca.pem"
    if kind == "fifo":
        os.mkfifo(path)
    if kind == "folder":
        path.mkdir()
    if kind == "large":
        path.write_bytes(b" " * (FILE_BYTES_MAX + 1))
    config = ExtenderConfig(url_prefix="https://x", tls=TlsConfig(ca_file=str(path)))
    with pytest.raises(FieldError, match="cannot be read") as caught:
        extender_of(config, str(path))
    assert caught.value.field == "extenders[0].tlsConfig.caFile"


def test_a_listed_file_is_the_authority(tmp_path: Path) -> None:
    """Its path is compared as the configuration has it."""
    authority = trustme.CA()
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    with over_https(authority, asks_client=False) as url:
        config = ExtenderConfig(
            url_prefix=url,
            filter_verb="f",
            node_cache_capable=True,
            tls=TlsConfig(ca_file=str(path), server_name="extender.example"),
        )
        with closing(extender_of(config, str(path))) as extender:
            assert isinstance(extender.filter(POD, NODES), FilterAnswer)


@pytest.mark.parametrize("listed", [(), ("http://127.0.0.1:2",), ("http://127.0.0.1:1/",)])
def test_an_address_that_the_operator_has_not_listed_is_refused(listed: tuple[str, ...]) -> None:
    """Addresses are compared as they are written."""
    config = ExtenderConfig(url_prefix="http://127.0.0.1:1", filter_verb="f")
    with pytest.raises(FieldError, match="not among the extenders") as caught:
        list(connect_extenders([config], AllowedExtenders(listed), ExtenderObjects(), "extenders"))
    assert caught.value.field == "extenders[0].urlPrefix"


def test_an_answer_that_comes_byte_by_byte_is_bounded_too() -> None:
    """By the timeout of the whole call, not of each byte."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while not ended.wait(0.05):
                    connection.sendall(b" ")

        thread = threading.Thread(target=drip)
        thread.start()
        config = ExtenderConfig(
            url_prefix=f"http://127.0.0.1:{listening.getsockname()[1]}",
            filter_verb="f",
            timeout_ns=3 * 10**8,
        )
        with closing(extender_of(config)) as extender:
            began = time.monotonic()
            answer = extender.filter(POD, NODES)
            assert time.monotonic() - began < 45, "1,000 bytes take 50 s"
        ended.set()
        thread.join()
    assert isinstance(answer, ExtenderError)
    assert answer.message.endswith("f: no answer within 0.3 s")
