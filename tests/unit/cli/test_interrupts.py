"""Signals that end a command, also where Python has lost the exception."""

from __future__ import annotations

import signal

import pytest

from replay.cli.errors import ENDING, Interrupted, Interrupts


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
        assert {signal.getsignal(each) for each in ENDING} == {signal.SIG_DFL}


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
    """Programs that embed the command keep their handlers, and there is one within another."""
    before = [signal.getsignal(each) for each in ENDING]
    with Interrupts() as outer:
        with Interrupts() as inner:
            assert inner is outer
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGTERM)
    assert [signal.getsignal(each) for each in ENDING] == before
