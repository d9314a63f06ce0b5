"""Rounds of a scheduler's session, with look-ahead and without."""

from __future__ import annotations

import pytest

from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.scheduler.ahead import held
from services.scheduler.ahead.heads import ForeseenHeads
from services.scheduler.core.session.scheduler import Scheduler
from services.scheduler.session import SchedulerSession


async def told(
    session: SchedulerSession, round_: scheduler_pb2.Round
) -> scheduler_pb2.RoundOutcomes:
    """Return what a session decides of one round."""
    [outcomes] = [outcomes async for outcomes in session.run(round_)]
    return outcomes


def ask_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the scheduler's sessions ask their queue for all heads, and send it all, at once."""
    monkeypatch.setattr(Scheduler, "may_matter", lambda *_: True)
    monkeypatch.setattr(ForeseenHeads, "_tried", lambda *_: None)
    monkeypatch.setattr(ForeseenHeads, "_came", lambda *_: None)
    monkeypatch.setattr(ForeseenHeads, "_is_empty", lambda *_: False)
    monkeypatch.setattr(held, "HELD_MAX", 0)
    monkeypatch.setattr(held, "TOGETHER_MAX", 0)
