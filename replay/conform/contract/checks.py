"""Checks of a service against the contract, by levels, and the report of their results.

A check is a function of a client. It passes, fails with one sentence, or finds a part of the
contract that the service does not implement. A level is reached where all checks up to it pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from replay.backends.responses import ResponseError, checked
from replay.backends.stream import describe, is_overdue, silent
from replay.errors import BackendError
from replay.world.response_checks import ContractError
from reprieve.session.v1beta1 import session_pb2
from services.rpc.parts import merged
from services.rpc.timeouts import Timeouts

CHECK_TIMEOUTS = Timeouts(response=20, call=20, checkpoint=20)
"""How long a check waits for each call, unless --timeout says otherwise."""
_WAIT_MIN_S = 0.1
PASSED, FAILED, NOT_SERVED = "passed", "failed", "not served"
MEASURED = frozenset({"phases", "steps", "wall_duration_ns", "queue_exchanges", "sequence"})
"""Fields in which equal responses may differ: wall time, and the request's number."""
_UNREACHED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_SHOWN = 120


class CheckError(Exception):
    """A difference between a service and the contract, in one sentence."""


class NotServedError(Exception):
    """A part of the contract that the service declares as not implemented."""


@dataclass(frozen=True, slots=True)
class Check:
    """A named check of a level; `run` raises CheckError, NotServedError or what a call raises.

    `rule` is the number of the rule that it checks: of the service's page, or "S1", "S2", ... for
    the rules of sessions.
    """

    level: int
    run: Callable[[ContractClient], None]
    rule: str = ""

    @property
    def name(self) -> str:
        """Return the behaviour that is checked, such as "places a pod where it fits"."""
        return self.run.__name__.replace("_", " ")


class Checks(list[Check]):
    """Checks in the order in which they are run within their levels."""

    def level(
        self, level: int, *, rule: int | str = ""
    ) -> Callable[[Callable[[ContractClient], None]], Callable[[ContractClient], None]]:
        """Return a decorator that adds a function as a check of that level and rule."""

        def add(run: Callable[[ContractClient], None]) -> Callable[[ContractClient], None]:
            self.append(Check(level, run, str(rule)))
            return run

        return add


@dataclass(frozen=True, slots=True)
class ConformanceLevel:
    """A level: what a service of it does, and the commands of Reprieve for which that is enough."""

    title: str
    serves: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceContract:
    """One service's part of the contract.

    `method` is the unary RPC of numbered requests; its stream has the prefix "Streaming". `look`
    checks a response by its request and all requests of the session. `story` are requests of a new
    session in the order of their times, and `backwards` others, of which the last one is before the
    one ahead of it; `malformed` are others, by the path of the invalid field. `is_between` returns
    whether a session can be saved after a response.
    """

    service: str
    stub: Callable[[grpc.Channel], Any]
    create: Callable[[], Any]
    method: str
    state: Callable[[], Any]
    look: Callable[[Any, Any, Sequence[Any]], None]
    story: Callable[[], list[Any]]
    backwards: Callable[[], list[Any]]
    malformed: Callable[[], dict[str, Any]]
    levels: Sequence[ConformanceLevel]
    checks: Sequence[Check]
    is_between: Callable[[Any], bool] = lambda _response: True


class ContractClient:
    """The client of the checks; `close` deletes the sessions that they leave.

    Every call that has no response halves the wait for all later ones, so that the checks of a
    service that hangs take about twice the longest timeout, however many they are.
    """

    def __init__(
        self,
        contract: ServiceContract,
        channel: grpc.Channel,
        address: str = "",
        timeouts: Timeouts = CHECK_TIMEOUTS,
    ) -> None:
        self.contract = contract
        self.title = f"the {contract.service} at {address}"
        self.stub = contract.stub(checked(channel, self.title))
        self._timeouts = timeouts
        self._unanswered = 0
        self._last_method = ""
        self._names: list[str] = []

    def call(self, method: str, request: Any) -> Any:
        """Return the response to one request, or to an iterator of requests."""
        self._last_method = method
        return getattr(self.stub, method)(request, timeout=self._wait_s(method))

    def overdue(self) -> str:
        """Return the text for the last call, which had no response, and wait less from now on."""
        method = self._last_method
        text = str(silent(f"{self.title}: {method}", _timeout_of(method), self._wait_s(method)))
        self._unanswered += 1
        return text

    def _wait_s(self, method: str) -> float:
        whole_s = float(getattr(self._timeouts, _timeout_of(method)))
        return max(whole_s * 0.5**self._unanswered, min(whole_s, _WAIT_MIN_S))

    def session(self, request: Message | None = None) -> CheckedSession:
        """Create a session, by `request` or by the contract's usual one."""
        return self.opened(self.call("CreateSession", request or self.contract.create()), ())

    def opened(self, opened: Any, sent: Iterable[Any]) -> CheckedSession:
        """Return a session that the service has opened, after the requests in `sent`."""
        expect("session_id is set", bool(opened.session_id), expected=True)
        self._names.append(opened.session_id)
        return CheckedSession(self, opened, sent)

    def delete(self, name: str) -> None:
        """Delete a session."""
        self.call("DeleteSession", session_pb2.DeleteSessionRequest(session_id=name))

    def close(self) -> None:
        """Delete the sessions that are left, until a call has no response."""
        names, self._names = self._names, []
        for name in names:
            try:
                self.delete(name)
            except ResponseError:
                continue
            except grpc.RpcError as error:
                if is_overdue(error):
                    self.overdue()
                    return


class CheckedSession:
    """A session whose responses are all checked."""

    def __init__(self, client: ContractClient, opened: Any, sent: Iterable[Any]) -> None:
        self.client = client
        self.opened = opened
        self.name: str = opened.session_id
        self.sequence = 0
        self._sent = list(sent)

    def stamped(self, request: Any, sequence: int | None = None) -> Any:
        """Return the request with the session's stamp; `sequence` None: the next number."""
        copy = type(request)()
        copy.CopyFrom(request)
        copy.stamp.session_id = self.name
        copy.stamp.sequence = self.sequence + 1 if sequence is None else sequence
        return copy

    def send(self, request: Any) -> Any:
        """Return the checked response to the next request."""
        stamped = self.stamped(request)
        return self.taken(stamped, self.client.call(self.client.contract.method, stamped))

    def taken(self, request: Any, answer: Any) -> Any:
        """Check the response to the next request and return it."""
        self.sequence += 1
        expect("sequence", answer.sequence, self.sequence)
        self._sent.append(request)
        self.client.contract.look(request, answer, self._sent)
        return answer

    def read(self, method: str, request: Any, whole: Any) -> Any:
        """Return the merged parts of a read's response."""
        request.stamp.session_id = self.name
        return merged(self.client.call(method, request), whole)

    def state(self) -> Any:
        """Return GetState's response."""
        return self.read("GetState", session_pb2.GetStateRequest(), self.client.contract.state())

    def checkpoint(self) -> list[session_pb2.CheckpointChunk]:
        """Return the session's checkpoint."""
        stamp = session_pb2.Stamp(session_id=self.name)
        request = session_pb2.CheckpointSessionRequest(stamp=stamp)
        return list(self.client.call("CheckpointSession", request))

    def restored(self, chunks: Iterable[session_pb2.CheckpointChunk]) -> CheckedSession:
        """Return a new session restored from a checkpoint."""
        return self.client.opened(self.client.call("RestoreSession", iter(chunks)), self._sent)


def expect(field: str, seen: object, expected: object) -> None:
    """Raise CheckError if a field's value is not the expected one."""
    if seen != expected:
        raise CheckError(f"{field} is {_short(seen)}, expected {_short(expected)}")


def only(field: str, values: Iterable[Any]) -> Any:
    """Return a field's only entry. Raises CheckError for another number of entries."""
    listed = list(values)
    expect(f"the number of {field}", len(listed), 1)
    return listed[0]


def expect_same(what: str, seen: Message, expected: Message) -> None:
    """Raise CheckError if messages differ in any field that is not in MEASURED."""
    one, other = (MessageToDict(it, preserving_proto_field_name=True) for it in (seen, expected))
    difference = _difference("", one, other)
    if difference:
        raise CheckError(f"{what}: {difference}")


def expect_refusal(
    call: Callable[[], object], code: str, reason: str, field: str = "", **metadata: str
) -> None:
    """Raise CheckError unless a call is refused so; BadRequest's path begins with `field`."""
    try:
        call()
    except grpc.RpcError as error:
        status = error.code().name if isinstance(error, grpc.Call) else str(error)
        if status == "UNIMPLEMENTED" or is_overdue(error):
            raise
        details = error.details() if isinstance(error, grpc.Call) else ""
        expect(f"the status (with {details!r})" if status != code else "the status", status, code)
        info, bad = _details(error)
        expect("ErrorInfo.reason", info.reason, reason)
        for name, value in metadata.items():
            expect(f"ErrorInfo.metadata[{name}]", info.metadata.get(name), value)
        paths = [violation.field for violation in bad.field_violations]
        if field and not any(path.startswith(field) for path in paths):
            raise CheckError(f"BadRequest names {paths}, expected {field}") from None
    else:
        raise CheckError(f"the request is accepted, expected {code} with {reason}")


def _details(error: Any) -> tuple[error_details_pb2.ErrorInfo, error_details_pb2.BadRequest]:
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    with contextlib.suppress(ValueError):  # details of another status
        status = rpc_status.from_call(error)
        for detail in status.details if status is not None else ():
            _ = detail.Unpack(info) or detail.Unpack(bad)
    return info, bad


def _difference(path: str, seen: Any, expected: Any) -> str:
    """Return the first difference of two JSON values, "" if none."""
    if isinstance(seen, dict) and isinstance(expected, dict):
        keys = sorted({*seen, *expected} - MEASURED)
        pairs = [(f"{path}.{key}".lstrip("."), seen.get(key), expected.get(key)) for key in keys]
    elif isinstance(seen, list) and isinstance(expected, list) and len(seen) == len(expected):
        both = enumerate(zip(seen, expected, strict=True))
        pairs = [(f"{path}[{index}]", one, other) for index, (one, other) in both]
    else:
        return "" if seen == expected else f"{path} is {_short(seen)}, expected {_short(expected)}"
    return next(filter(None, (_difference(*pair) for pair in pairs)), "")


def _short(value: object) -> str:
    text = "absent" if value is None else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check; `why` has the expected and the received value of a failed one."""

    level: int
    rule: str
    check: str
    result: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractReport:
    """The results of all checks of the service at an address."""

    address: str
    contract: ServiceContract
    results: Sequence[CheckResult]

    @property
    def level(self) -> int:
        """Return the highest level reached, 0 for none."""
        missed = [result.level for result in self.results if result.result != PASSED]
        return min(missed, default=len(self.contract.levels) + 1) - 1

    @property
    def sentence(self) -> str:
        """Return the level reached, as a sentence for users."""
        contract = f"the {self.contract.service} contract"
        if not self.level:
            return f"{self.address} does not reach level 1 of {contract}"
        serves = self.contract.levels[self.level - 1].serves
        return f"{self.address} reaches level {self.level} of {contract}: it serves {serves}"

    def to_mapping(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {
            "address": self.address,
            "contract": self.contract.service,
            "level": self.level,
            "levels": [asdict(level) for level in self.contract.levels],
            "checks": [asdict(result) for result in self.results],
        }


def run_checks(
    contract: ServiceContract,
    channel: grpc.Channel,
    address: str,
    timeouts: Timeouts = CHECK_TIMEOUTS,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> ContractReport:
    """Run all checks of a contract; `progress` receives how many are done, and of how many.

    Raises BackendError if the service is unavailable.
    """
    client = ContractClient(contract, channel, address, timeouts)
    try:
        client.delete("nobody's")
    except ResponseError:
        pass  # The checks report it.
    except grpc.RpcError as error:
        if is_overdue(error):
            raise BackendError(client.overdue()) from error
        if isinstance(error, grpc.Call) and error.code() in _UNREACHED:
            raise BackendError(f"{client.title} returned {describe(error)}") from error
    checks = sorted(contract.checks, key=lambda check: check.level)
    results: list[CheckResult] = []
    for check in checks:
        progress(len(results), len(checks))
        results.append(_result(check, client))
    return ContractReport(address=address, contract=contract, results=results)


def _result(check: Check, client: ContractClient) -> CheckResult:
    result, why = PASSED, ""
    try:
        check.run(client)
    except (CheckError, ContractError, ResponseError) as error:
        result, why = FAILED, str(error)
    except (LookupError, ValueError) as error:
        result, why = FAILED, f"the response lacks an expected value: {error!r}"
    except NotServedError as error:
        result, why = NOT_SERVED, str(error)
    except grpc.RpcError as error:
        unserved = isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNIMPLEMENTED
        why = client.overdue() if is_overdue(error) else f"the service returned {describe(error)}"
        result = NOT_SERVED if unserved else FAILED
    finally:
        client.close()
    return CheckResult(level=check.level, rule=check.rule, check=check.name, result=result, why=why)


def _timeout_of(method: str) -> str:
    """Return the name of the timeout that limits a method's calls."""
    if method in {"CheckpointSession", "RestoreSession"}:
        return "checkpoint"
    is_numbered = method.endswith(("RunRound", "Apply"))
    return "response" if is_numbered else "call"
