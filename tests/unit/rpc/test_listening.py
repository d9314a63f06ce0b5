"""Addresses at which a service cannot listen: the reason and what to do, in one line."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from services.rpc.listening import ListenError, StartError, check_can_listen, host_and_port


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:50051", ("::1", 50051)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_host_and_port_are_taken_apart(address: str, parts: tuple[str, int]) -> None:
    """An IPv6 address has brackets."""
    assert host_and_port("--listen", address) == parts


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":",
        "127.0.0.1",
        ":50051",
        "127.0.0.1:",
        "127.0.0.1:x",
        "::1:5",
        "a:-1",
        "a:65536",
        "a:²",
    ],
)
def test_what_is_not_host_and_port_is_refused(address: str) -> None:
    """With the option and an example."""
    with pytest.raises(StartError, match=r"^--listen: .*(such as 127|from 0 to 65535)") as error:
        host_and_port("--listen", address)
    assert error.value.exit_code == 2


def test_a_used_port_is_refused() -> None:
    """The other program is named by the option that chooses another port."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            ListenError, match=r"another program listens there.*with --metrics"
        ) as e:
            check_can_listen("--metrics", f"127.0.0.1:{port}")
    assert e.value.exit_code == 3
    check_can_listen("--metrics", f"127.0.0.1:{port}")


def test_an_address_of_another_machine_is_refused() -> None:
    """192.0.2.0/24 is nobody's (RFC 5737)."""
    with pytest.raises(ListenError, match="this machine does not have that address"):
        check_can_listen("--listen", "192.0.2.1:0")


def test_a_name_without_an_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver is not asked here."""

    def resolve(*_arguments: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "no")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(ListenError, match=r"nowhere\.invalid:1: the host name has no address"):
        check_can_listen("--listen", "nowhere.invalid:1")


@pytest.mark.parametrize(
    ("number", "problem"),
    [(errno.EACCES, "choose one of 1024 or more"), (errno.ENOBUFS, os.strerror(errno.ENOBUFS))],
)
def test_a_port_that_the_system_refuses_is_refused(
    monkeypatch: pytest.MonkeyPatch, number: int, problem: str
) -> None:
    """A privileged port, or anything else; root may use them all."""

    class Refusing(socket.socket):
        def bind(self, _address: object) -> None:
            raise OSError(number, "no")

    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(ListenError, match=problem):
        check_can_listen("--listen", "127.0.0.1:80")
