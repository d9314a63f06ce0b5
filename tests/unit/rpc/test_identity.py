"""Identities and rights of callers: names, tokens, and the table of methods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import grpc
import pytest

from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2
from reprieve.eviction.v1beta1 import eviction_service_pb2
from reprieve.queue.v1beta1 import queue_service_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2
from services.rpc.access import Rights
from services.rpc.errors import UnauthenticatedError
from services.rpc.identity import (
    METHODS,
    CertificateNames,
    TokenNames,
    Use,
    current_caller,
    may_use_session_of,
    token_digest,
    use_of,
)

SERVICES = {
    name: module.DESCRIPTOR.services_by_name[f"{name}Service"]
    for name, module in (
        ("Queue", queue_service_pb2),
        ("Scheduler", scheduler_service_pb2),
        ("Eviction", eviction_service_pb2),
        ("Autoscaler", autoscaler_service_pb2),
    )
}
Context = grpc.aio.ServicerContext[Any, Any]


class Call:
    """The part of a call's context that tells who calls."""

    def __init__(self, metadata: Iterable[tuple[str, str]] = (), **shown: Iterable[bytes]) -> None:
        self._metadata, self._shown = tuple(metadata), shown

    def auth_context(self) -> dict[str, Iterable[bytes]]:  # noqa: D102 - as in gRPC
        return self._shown

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:  # noqa: D102 - as in gRPC
        return self._metadata


def bearer(token: str, scheme: str = "Bearer") -> Context:
    """Return the context of a call with a token."""
    return cast("Context", Call([("user-agent", "x"), ("authorization", f"{scheme} {token}")]))


@pytest.mark.parametrize("name", SERVICES)
def test_every_method_of_the_contract_is_in_the_table(name: str) -> None:
    """A new one has to say whether it drives or looks."""
    methods = {method.name for method in SERVICES[name].methods}
    assert methods
    assert not methods - set(METHODS)


def test_the_table_has_no_method_that_does_not_exist() -> None:
    """Reflection has one of its own."""
    methods = {method.name for service in SERVICES.values() for method in service.methods}
    assert set(METHODS) - methods == {"ServerReflectionInfo"}


def test_an_unknown_method_drives_and_health_is_open() -> None:
    """The stricter of the two, where nobody has thought about it."""
    assert use_of("/reprieve.queue.v1beta1.QueueService/Defragment") is Use.DRIVE
    assert use_of("/reprieve.queue.v1beta1.QueueService/Check") is Use.DRIVE
    assert use_of("/grpc.health.v1.Health/Watch") is Use.OPEN
    assert use_of("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo") is Use.LOOK


def test_without_access_control_a_caller_is_anonymous_and_sessions_are_for_their_names() -> None:
    """As in a process, and on a loopback address."""
    assert current_caller() == ""
    assert may_use_session_of("")
    assert not may_use_session_of("replay.example")


def test_a_certificate_has_its_names_in_order() -> None:
    """The SPIFFE URI owns the sessions."""
    call = Call(
        peer_dns=[b"a.example", b"b.example"],
        peer_uri=[b"https://x", b"spiffe://d/replay"],
        peer_ip=[b"::1"],
        x509_common_name=[b"replay"],
    )
    names = CertificateNames(frozenset({"replay", "*"}))(cast("Context", call))
    assert names == ("spiffe://d/replay", "a.example", "b.example", "ip:::1")


@pytest.mark.parametrize("name", [b"replay", b"token:alice", b"spiffe://d/replay", b"*", b""])
def test_a_common_name_alone_is_no_identity(name: bytes) -> None:
    """Unless an access file lists it as a common name."""
    listed = frozenset({"replay", "token:alice", "spiffe://d/replay", "*", "cn:other"})
    with pytest.raises(UnauthenticatedError, match="cn:NAME"):
        CertificateNames(listed)(cast("Context", Call(x509_common_name=[name])))


def test_an_access_file_may_ask_for_a_common_name() -> None:
    """It is the last of the names, under its own prefix."""
    call = cast("Context", Call(peer_dns=[b"a.example"], x509_common_name=[b"replay"]))
    assert CertificateNames(frozenset({"cn:replay"}))(call) == ("a.example", "cn:replay")


def test_a_token_is_found_by_its_digest() -> None:
    """With any spelling of the scheme, which RFC 9110 has case-insensitive."""
    names = TokenNames({"bob": token_digest("other"), "alice": token_digest("secret\n")})
    assert names(bearer("secret")) == ("token:alice",)
    assert names(bearer("secret", "bearer")) == ("token:alice",)


@pytest.mark.parametrize("call", [bearer("secrets"), bearer(""), bearer("secret", "Basic"), Call()])
def test_the_refusal_of_an_unknown_token_does_not_show_it(call: Context) -> None:
    """An error may be logged by the caller."""
    names = TokenNames({"alice": token_digest("secret")})
    with pytest.raises(UnauthenticatedError) as refused:
        names(call)
    assert "secret" not in str(refused.value)


def test_rights_go_by_any_name_and_by_the_star() -> None:
    """The star stands for everyone with an identity."""
    rights = Rights(drive=frozenset({"a"}), look=frozenset({"*"}))
    assert rights.may_drive(("x", "a"))
    assert not rights.may_drive(("x",))
    assert rights.may_look(("x",))
    assert Rights().may_drive(("x",))
    assert not Rights().may_look(("x",))
