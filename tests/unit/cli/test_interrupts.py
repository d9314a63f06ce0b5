"""Ctrl-C that Python has lost."""

from __future__ import annotations

import signal

import pytest

from replay.cli.errors import Interrupts


def test_an_interrupt_that_was_lost_is_raised_at_the_next_safe_moment() -> None:
    """As one in a callback would be."""
    with Interrupts() as interrupts:
        interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()


def test_what_was_set_before_is_set_again_afterwards() -> None:
    """Whoever embeds the command keeps their handler."""
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
