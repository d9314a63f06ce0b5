"""Who holds pops through a stream: when the stream ends, its owners have gone.

Only live sessions give pops back. A replay's stream that breaks is opened again by the same
replay, which knows what it has in flight.
"""

from __future__ import annotations

from collections.abc import Iterable

from reprieve.queue.v1alpha1 import queue_pb2, queue_service_pb2
from services.queue.batch import Clock
from services.queue.saved import QueueSession
from services.rpc.sessions import Session


def owners_of(request: queue_service_pb2.StreamRequest) -> list[str]:
    """Return the owners that pop in `request`."""
    return [owner for each in request.operations if (owner := _owner(each))]


def _owner(operation: queue_pb2.Operation) -> str:
    match operation.WhichOneof("operation"):
        case "pop":
            return operation.pop.owner
        case "commit_pop":
            return operation.commit_pop.owner
    return ""


def give_back(session: Session[QueueSession], owners: Iterable[str], clock: Clock) -> None:
    """Give the pops of owners that have gone back to a live session's queue."""
    at_ns = clock.read(0)
    for owner in owners:
        session.core.queue.release_owner(owner, now_ns=at_ns)
    session.at_ns = at_ns
    session.core.revision += 1


def expire_leases(session: Session[QueueSession], at_ns: int) -> None:
    """Give back the pops whose owners have not been heard of in time."""
    if session.core.config.lease_ns:
        session.core.queue.expire_leases(now_ns=at_ns)
        session.at_ns = at_ns
