"""Rounds told to a scheduler's session."""

from __future__ import annotations

from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.scheduler.session import SchedulerSession


async def told(
    session: SchedulerSession, round_: scheduler_pb2.Round
) -> scheduler_pb2.RoundOutcomes:
    """Return what a session decides of one round."""
    [outcomes] = [outcomes async for outcomes in session.run(round_)]
    return outcomes
