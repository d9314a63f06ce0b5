"""The scheduler's sessions, each with one of its queue's: none is left alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as service_pb2
from reprieve.session.v1beta1 import session_pb2
from services.rpc.errors import FieldError, LimitError, UnavailableError
from services.rpc.limits import DEFAULT_LIMITS, Limits
from services.scheduler.servicer import SchedulerServicer


class Link:
    """A queue that counts the sessions of it that are open; it answers `rules`."""

    def __init__(self, rules: str = "v1.34") -> None:
        self.rules = rules
        self.opened = self.open_now = 0

    async def open(self, config: queue_pb2.QueueConfig) -> Any:
        """Open a session, which is the link itself."""
        self.opened += 1
        self.open_now += 1
        self.config = queue_pb2.QueueConfig()
        self.config.CopyFrom(config)
        self.config.rules = self.rules
        return self

    resumable = foreseeable_heads = False

    async def close(self) -> None:
        """Close a session."""
        self.open_now -= 1

    def answers_wrongly(self, problem: str) -> UnavailableError:
        """Return the refusal for an answer that breaks the contract."""
        return UnavailableError(f"it answers wrongly: {problem}")


def create(servicer: SchedulerServicer, config: scheduler_pb2.SchedulerConfig) -> str:
    """Create a session and return its name."""
    context: Any = None
    request = service_pb2.CreateSessionRequest(config=config)
    return asyncio.run(servicer.CreateSession(request, context)).session_id


def servicer_of(link: Link, limits: Limits = DEFAULT_LIMITS) -> SchedulerServicer:
    """Return the scheduler of a queue."""
    queue: Any = link
    return SchedulerServicer(queue, limits=limits)


def test_a_session_that_is_deleted_takes_its_queues_with_it() -> None:
    """Once."""
    servicer = servicer_of(link := Link())
    name = create(servicer, scheduler_pb2.SchedulerConfig())
    assert link.open_now == 1
    context: Any = None
    for _ in range(2):
        asyncio.run(
            servicer.DeleteSession(session_pb2.DeleteSessionRequest(session_id=name), context)
        )
    assert link.open_now == 0


@pytest.mark.parametrize(
    "config",
    [
        scheduler_pb2.SchedulerConfig(rules="v0"),
        scheduler_pb2.SchedulerConfig(batch_size=0),
        scheduler_pb2.SchedulerConfig(ties=scheduler_pb2.TIE_BREAK_UNSPECIFIED),
        scheduler_pb2.SchedulerConfig(kube_scheduler_configuration="kind: Nobody"),
    ],
    ids=["rules", "batch size", "ties", "file"],
)
def test_a_configuration_that_is_refused_opens_nothing(
    config: scheduler_pb2.SchedulerConfig,
) -> None:
    """The queue is not asked."""
    with pytest.raises(FieldError):
        create(servicer_of(link := Link()), config)
    assert link.opened == 0


def test_a_session_too_many_opens_nothing() -> None:
    """The one before it stays."""
    servicer = servicer_of(link := Link(), Limits(sessions=1))
    create(servicer, scheduler_pb2.SchedulerConfig())
    with pytest.raises(LimitError):
        create(servicer, scheduler_pb2.SchedulerConfig())
    assert (link.opened, link.open_now) == (1, 1)


def test_a_queue_of_unknown_rules_is_left() -> None:
    """A queue of another make may have them; the caller's configuration is not at fault."""
    with pytest.raises(UnavailableError, match=r"answers wrongly: config\.rules: 'v9'"):
        create(servicer_of(link := Link("v9")), scheduler_pb2.SchedulerConfig())
    assert (link.opened, link.open_now) == (1, 0)
