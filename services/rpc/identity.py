"""Identifies the caller of a service, and decides which methods and sessions it may use.

A caller has the names in its certificate: the SPIFFE URIs, DNS names and IP addresses (as
`ip:ADDRESS`) of the subject alternative name, in this order. With a bearer token, its name is
`token:NAME`. The common name counts, as `cn:NAME`, only if an access file lists it in this form,
because some authorities let the requester of a certificate choose it. The first name identifies the
caller, and owns the sessions that the caller creates.

A method either drives a session or only looks at one; a method that METHODS does not list drives.
Health checks are open to everyone. Calls within a process, and calls to a service without access
control, are anonymous: the caller's name is "".
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any

import grpc

from services.rpc.access import Access, AccessError, Rights, read_access
from services.rpc.credentials import Watched
from services.rpc.errors import PermissionDeniedError, UnauthenticatedError
from services.rpc.interceptors.statuses import refuse
from services.rpc.interceptors.tracing import Handler, HandlerInterceptor, function_of, replaced

TOKEN_PREFIX = "token:"  # noqa: S105 - a prefix of names, not a token
SPIFFE_PREFIX = "spiffe://"
ADDRESS_PREFIX = "ip:"
COMMON_NAME_PREFIX = "cn:"
_BEARER = "bearer "
_HEALTH = "grpc.health.v1.Health"


class Use(Enum):
    """The right that a method requires on a session."""

    OPEN = "ask"
    LOOK = "look at"
    DRIVE = "drive"


METHODS: Mapping[str, Use] = {
    "CreateSession": Use.DRIVE,
    "DeleteSession": Use.DRIVE,
    "RestoreSession": Use.DRIVE,
    "Apply": Use.DRIVE,
    "StreamingApply": Use.DRIVE,
    "RunRound": Use.DRIVE,
    "StreamingRunRound": Use.DRIVE,
    "EvaluatePod": Use.LOOK,
    "GetState": Use.LOOK,
    "WatchPending": Use.LOOK,
    "CheckpointSession": Use.LOOK,
    "ServerReflectionInfo": Use.LOOK,
}
"""The right that each method of the services, and reflection, requires."""


def use_of(path: str) -> Use:
    """Return the right for a method; `path` is "package.Service/Method" or begins with a slash."""
    service, _, method = path.removeprefix("/").partition("/")
    return Use.OPEN if service == _HEALTH else METHODS.get(method, Use.DRIVE)


@dataclass(frozen=True, slots=True)
class _Caller:
    """The name of a call's sender, and whether the call may look at any session."""

    name: str = ""
    looks: bool = False


_CALLER: ContextVar[_Caller] = ContextVar("caller", default=_Caller())  # noqa: B039 - immutable


def current_caller() -> str:
    """Return the name of the current call's caller; "" for an anonymous caller."""
    return _CALLER.get().name


def may_use_session_of(owner: str) -> bool:
    """Return whether the current caller may use a session that `owner` has created.

    The owner may. A caller with the right to look may look at every session. A session of an
    anonymous owner can be used by everyone who knows the session's name.
    """
    caller = _CALLER.get()
    return caller.looks or owner in ("", caller.name)


Identify = Callable[[grpc.aio.ServicerContext[Any, Any]], tuple[str, ...]]
"""Returns the names of a call's sender, at least one. Raises UnauthenticatedError."""


@dataclass(frozen=True, slots=True)
class CertificateNames:
    """Finds the names in a caller's certificate; `listed` has all names in the lists of rights."""

    listed: frozenset[str] = frozenset()

    def __call__(self, context: grpc.aio.ServicerContext[Any, Any]) -> tuple[str, ...]:
        """Return the names.

        A DNS name with a colon is ignored, because it could imitate another kind of name.
        """
        shown: Mapping[str, Iterable[bytes]] = context.auth_context()
        names = [
            *(uri for uri in _texts(shown, "peer_uri") if uri.startswith(SPIFFE_PREFIX)),
            *(name for name in _texts(shown, "peer_dns") if name and ":" not in name),
            *(ADDRESS_PREFIX + address for address in _texts(shown, "peer_ip")),
        ]
        common = (COMMON_NAME_PREFIX + name for name in _texts(shown, "x509_common_name"))
        names.extend(name for name in common if name in self.listed)
        if not names:
            raise UnauthenticatedError(
                "no identity: show a certificate with a SPIFFE URI, a DNS name or an IP address; "
                f"a common name counts where the access file lists it as {COMMON_NAME_PREFIX}NAME"
            )
        return tuple(dict.fromkeys(names))


def _texts(shown: Mapping[str, Iterable[bytes]], kind: str) -> Iterator[str]:
    return (value.decode(errors="replace") for value in shown.get(kind, ()))


@dataclass(frozen=True, slots=True)
class Policy:
    """The access policy of a service: how callers are identified, and their rights."""

    identify: Identify
    rights: Rights


@dataclass(frozen=True, slots=True)
class TokenNames:
    """Finds the sender of a bearer token; `digests` has the SHA-256 of tokens by name, in hex."""

    digests: Mapping[str, str]

    def __call__(self, context: grpc.aio.ServicerContext[Any, Any]) -> tuple[str, ...]:
        """Return `token:NAME`. Every digest is compared, each in constant time."""
        for key, value in context.invocation_metadata() or ():
            if key == "authorization" and isinstance(value, str):
                scheme, token = value[: len(_BEARER)], value[len(_BEARER) :]
                name = self._name_of(token) if scheme.lower() == _BEARER else ""
                if name:
                    return (TOKEN_PREFIX + name,)
                raise UnauthenticatedError("the token is not one of this service's tokens")
        raise UnauthenticatedError("no token: send one as `authorization: Bearer TOKEN`")

    def _name_of(self, token: str) -> str:
        digest = token_digest(token)
        matching = ""
        for name, expected in self.digests.items():
            if hmac.compare_digest(digest, expected):
                matching = name
        return matching


def token_digest(token: str) -> str:
    """Return a token's SHA-256 in hex; white space around the token is ignored."""
    return hashlib.sha256(token.strip().encode()).hexdigest()


def policy_of(service: str, access: Access) -> Callable[[], Policy] | None:
    """Return a function that returns a service's policy, and follows changes of its access file.

    None if callers need no identity. Raises AccessError.
    """
    if not access.identifies:
        if access.services:
            raise AccessError(
                f"{access.source}: services: needs identities: add authority or tokens"
            )
        return None

    def load() -> Policy:
        now = read_access(access.source) if access.source else access
        if not now.identifies or bool(now.tokens) != bool(access.tokens):
            raise AccessError(f"{access.source}: how callers show who they are needs a restart")
        rights = now.rights(service)
        if now.tokens:
            return Policy(TokenNames(now.tokens), rights)
        return Policy(CertificateNames(rights.drive | rights.look), rights)

    return Watched([access.source], load).current


class AccessInterceptor(HandlerInterceptor):
    """Identifies the caller of every call, and refuses callers without the right.

    `policy` returns the policy that applies now.
    """

    def __init__(self, service: str, policy: Callable[[], Policy]) -> None:
        self._service = service
        self._policy = policy

    def wrapped(self, name: str, handler: Handler) -> Handler:
        """Return the method's handler, wrapped."""
        use = use_of(name)
        if use is Use.OPEN:
            return handler
        function = function_of(handler)
        wraps_stream = handler.response_streaming and inspect.isasyncgenfunction(function)
        wrap = self._streaming if wraps_stream else self._single
        return replaced(handler, wrap(use, function))

    def _single(self, use: Use, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(request: Any, context: Any) -> Any:
            return await function(request, context) if self._admits(use, context) else None

        return call

    def _streaming(self, use: Use, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(request: Any, context: Any) -> AsyncIterator[Any]:
            if not self._admits(use, context):
                return
            async with aclosing(function(request, context)) as answers:
                async for answer in answers:
                    yield answer

        return call

    def _admits(self, use: Use, context: grpc.aio.ServicerContext[Any, Any]) -> bool:
        """Set the current caller and return True, or refuse the call."""
        policy = self._policy()
        try:
            names = policy.identify(context)
            if not _is_allowed(policy.rights, names, use):
                raise PermissionDeniedError(
                    f"{names[0]!r} may not {use.value} the {self._service} service: its access "
                    f"file lists who may"
                )
        except (UnauthenticatedError, PermissionDeniedError) as refusal:
            refuse(context, refusal)
            return False
        looks = use is Use.LOOK and policy.rights.may_look(names)
        _CALLER.set(_Caller(names[0], looks))
        return True


def _is_allowed(rights: Rights, names: Iterable[str], use: Use) -> bool:
    """Return whether a caller with these names may use a method; who may drive may also look."""
    return rights.may_drive(names) or (use is Use.LOOK and rights.may_look(names))
