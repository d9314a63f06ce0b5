"""Checks addresses: their form, whether they are local, and whether a server can listen there."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

import click

_PORT_MAX = 65535
_LOCAL_NAMES = frozenset({"localhost", "ip6-localhost"})
_LOCAL_SCHEMES = ("unix:", "unix-abstract:")
_SCHEMES = (*_LOCAL_SCHEMES, "dns:", "ipv4:", "ipv6:")
"""Schemes of gRPC's server names (its doc/naming.md); gRPC checks addresses with a scheme."""


class StartError(click.ClickException):
    """An option that prevents a service from starting; the message says why and what to do."""

    exit_code = 2


class ListenError(StartError):
    """An address at which a service cannot listen."""

    exit_code = 3


def host_and_port(option: str, address: str) -> tuple[str, int]:
    """Return the parts of HOST:PORT, an IPv6 host without brackets. Raises StartError."""
    host, colon, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (colon and bare and port.isascii() and port.isdecimal()) or (
        ":" in host and bare == host
    ):
        raise StartError(
            f"{option}: {address!r} is not HOST:PORT, such as 127.0.0.1:50051 or [::1]:50051"
        )
    if int(port) > _PORT_MAX:
        raise StartError(f"{option}: {address!r}: the port must be from 0 to {_PORT_MAX}")
    return bare, int(port)


def check_can_connect(address: str) -> None:
    """Raise StartError if no client can connect to an address because of its form."""
    if not address.startswith(_SCHEMES):
        host_and_port("the service's address", address)


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach the host of HOST:PORT.

    Host names other than localhost are not resolved, because their addresses may change.
    """
    if address.startswith(_LOCAL_SCHEMES):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_can_listen(option: str, address: str) -> None:
    """Raise ListenError if no server can listen at HOST:PORT."""
    host, port = host_and_port(option, address)
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise ListenError(
            f"{option} {address}: the host name has no address: check it, or use an IP address"
        ) from None
    problems = [_problem(family, where) for family, _, _, _, where in addresses]
    problem = next((number for number in problems if number == errno.EADDRINUSE), min(problems))
    if problem:
        raise ListenError(f"{option} {address}: {_advice(problem, option)}")


def _problem(family: int, where: tuple[object, ...]) -> int:
    """Return the errno of binding to an address; 0 if it succeeds."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        return error.errno or errno.EINVAL
    return 0


def _advice(number: int, option: str) -> str:
    match number:
        case errno.EADDRINUSE:
            return f"another program listens there: stop it, or choose another port with {option}"
        case errno.EADDRNOTAVAIL:
            return (
                f"this machine does not have that address: use one of its own, or 0.0.0.0, "
                f"with {option}"
            )
        case errno.EACCES | errno.EPERM:
            return (
                f"this user may not listen on that port: choose one of 1024 or more with {option}"
            )
    return f"{os.strerror(number)}: choose another address with {option}"
