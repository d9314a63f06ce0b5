"""Signals that end a command, also where Python has lost the exception."""

from __future__ import annotations

import asyncio
import importlib
import signal
import sys
import threading
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from replay.interrupts import ENDING, Interrupted, Interrupts, StopSignals, is_interrupted
from reprieve.eviction.v1beta1.eviction_service_pb2 import CreateSessionRequest
from reprieve.eviction.v1beta1.eviction_service_pb2_grpc import (
    EvictionServiceStub,
    add_EvictionServiceServicer_to_server,
)
from services.eviction.servicer import EvictionServicer
from services.rpc.client import channel
from services.rpc.local import LocalServer


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_is_an_interrupt_with_its_exit_code(number: signal.Signals) -> None:
    """It unwinds as Ctrl-C does; shells know the code."""
    with Interrupts(), pytest.raises(KeyboardInterrupt) as raised:
        signal.raise_signal(number)
    assert isinstance(raised.value, Interrupted)
    assert raised.value.code == 128 + number
    assert str(raised.value) == f"ended by {number.name}"


@pytest.mark.parametrize("number", ENDING)
def test_an_interrupt_that_was_lost_is_raised_at_the_next_safe_moment(
    number: signal.Signals,
) -> None:
    """As one in a callback would be."""
    with Interrupts() as interrupts:
        interrupts.check()
        with pytest.raises(Interrupted):
            signal.raise_signal(number)
        with pytest.raises(Interrupted, match=number.name):
            interrupts.check()


def test_the_second_signal_is_the_systems() -> None:
    """It ends the process at once, wherever Python is."""
    with Interrupts():
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGTERM)
        assert {signal.getsignal(status) for status in ENDING} == {signal.SIG_DFL}


def test_an_ignored_signal_stays_ignored() -> None:
    """As nohup ignores SIGHUP, and a shell SIGINT for what runs in the background."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts():
            signal.raise_signal(signal.SIGHUP)
            with pytest.raises(Interrupted):
                signal.raise_signal(signal.SIGTERM)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_was_set_before_is_set_again_afterwards() -> None:
    """Programs that embed the command keep their handlers."""
    before = [signal.getsignal(status) for status in ENDING]
    with Interrupts(), pytest.raises(Interrupted):
        signal.raise_signal(signal.SIGTERM)
    assert [signal.getsignal(status) for status in ENDING] == before


class _Signalling:
    """A lock that a signal follows, as one may follow any: taken or returned."""

    def __init__(self, *, taken: bool) -> None:
        self._lock = threading.Lock()
        self._at_taken = taken
        self.acquire, self.release, self.locked = (
            self._lock.acquire,
            self._lock.release,
            self._lock.locked,
        )

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._at_taken:
            signal.raise_signal(signal.SIGTERM)

    def __exit__(self, *exception: object) -> None:
        self._lock.release()
        if not self._at_taken:
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("taken", [True, False])
def test_a_signal_leaves_no_lock_of_a_library_held(*, taken: bool) -> None:
    """Python's own `with condition:` is interrupted after it took its lock, or returned it."""
    lock = _Signalling(taken=taken)
    condition = threading.Condition(lock)  # type: ignore[arg-type] # all that a condition uses
    with Interrupts(), pytest.raises(Interrupted, match="SIGTERM"), condition:
        assert not taken, "raised before the first instruction within"
    assert not lock.locked()
    assert not is_interrupted()
    assert sys.gettrace() is None


def test_a_signal_waits_for_a_library_to_return() -> None:
    """Whoever waits on behalf of the library learns of it."""
    seen: list[bool] = []

    def within() -> bool:
        signal.raise_signal(signal.SIGHUP)
        seen.append(is_interrupted())
        return True

    with Interrupts(), pytest.raises(Interrupted, match="SIGHUP"):
        threading.Condition().wait_for(within)
    assert seen == [True]


class SignalledEviction(EvictionServicer):
    """A service to which a signal comes within a request; `is_whole` once that was done."""

    is_whole = False

    async def CreateSession(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Do it, and get a signal before."""
        signal.raise_signal(signal.SIGTERM)
        session = await super().CreateSession(request, context)
        self.is_whole = True
        return session


def test_a_signal_leaves_no_request_of_a_service_in_this_process_half_done() -> None:
    """It is raised where the replay continues."""
    servicer = SignalledEviction()
    with asyncio.Runner() as runner:
        server = LocalServer(runner.get_loop())
        add_EvictionServiceServicer_to_server(servicer, cast("grpc.aio.Server", server))
        stub = EvictionServiceStub(channel(server.address))
        with Interrupts(), pytest.raises(Interrupted):
            stub.CreateSession(CreateSessionRequest())
        server.close()
    assert servicer.is_whole


def test_a_signal_leaves_no_module_half_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next import of it would fail, and Python's own locks call back."""
    (tmp_path / "signalling.py").write_text("import signal\nsignal.raise_signal(1)\nWHOLE = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with Interrupts(), pytest.raises(Interrupted, match="SIGHUP"):
        importlib.import_module("signalling")
    assert sys.modules.pop("signalling").WHOLE


class Destroyed:
    """An object to which a signal comes while it is destroyed."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_within_a_destructor_is_not_lost() -> None:
    """Python reports what is raised there, and continues; other errors are still reported."""
    seen: list[object] = []
    hook = sys.unraisablehook
    with Interrupts():
        with pytest.raises(Interrupted, match="SIGTERM"):  # noqa: PT012 - what is not reached
            made = Destroyed()
            del made
            seen.append("went on")
        assert sys.unraisablehook != hook
    assert sys.unraisablehook == hook
    assert seen == []


def test_another_error_of_a_destructor_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without signals."""
    seen: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda reported: seen.append(reported.exc_type))

    class Failing:
        def __del__(self) -> None:
            raise ValueError

    with Interrupts():
        made = Failing()
        del made
    assert seen == [ValueError]


def test_the_signal_that_ends_a_recording_at_once_leaves_no_lock_held() -> None:
    """As the first one of another command."""
    lock = _Signalling(taken=True)
    condition = threading.Condition(lock)  # type: ignore[arg-type] # as above
    with StopSignals() as signals:
        signals.arm()
        with pytest.raises(KeyboardInterrupt), condition:
            pass
    assert (signals.number, lock.locked()) == (signal.SIGTERM, False)
