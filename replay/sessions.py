"""The services of one replay: those that it starts, and its sessions with them.

A session can be opened again, as in a checkpoint or as at the beginning; a child process can be
started again, then at another address.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from replay.backends.processes import Compiling, EmbeddedServices
from replay.backends.services import EvictionService, SchedulerService
from replay.errors import BackendError, ServiceLostError
from replay.results.run.resume_point import ResumePoint, unpacked
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.rpc.access import ClientTls

_OPENINGS_MAX = 3
"""How often child processes are started where one of them ends before its session is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedServices:
    """Where the services of a replay are, and the configurations of their sessions.

    scheduler_address, eviction_address: "" starts the service as a child process, or within this
    one with in_process. tls: for services at addresses, and the timeouts of all. eviction: None
    where no eviction service is needed. warms_up, compiling: as EmbeddedServices has them.
    restarts: whether child processes that end before their sessions are open are started again.
    """

    scheduler_address: str
    eviction_address: str
    tls: ClientTls
    scheduler: scheduler_pb2.SchedulerConfig
    eviction: eviction_pb2.EvictionConfig | None
    in_process: bool
    warms_up: bool
    compiling: Compiling
    restarts: bool


@dataclass(slots=True, kw_only=True)
class Services:
    """The sessions of a replay, and the child processes among the services."""

    wanted: WantedServices
    embedded: EmbeddedServices
    scheduler: SchedulerService
    eviction: EvictionService | None

    @property
    def are_resumable(self) -> bool:
        """Return whether every session can be saved and restored."""
        sessions = (self.scheduler, self.eviction)
        return all(each is None or each.opened.resumable for each in sessions)

    def restart(self) -> None:
        """Start the child processes again. Raises BackendError; ServiceLostError where one ends."""
        if self.embedded.addresses:
            self.embedded.restart()

    def reopen(self, point: ResumePoint) -> None:
        """Open new sessions, as at the checkpoint or, without one, as at the beginning.

        Raises BackendError; a ServiceLostError where a service cannot be reached.
        """
        addresses = self.embedded.addresses
        address = self.wanted.scheduler_address or addresses["scheduler"]
        self.scheduler.reopen(address, unpacked(point.scheduler), point.rounds)
        if self.eviction is not None:
            address = self.wanted.eviction_address or addresses["eviction"]
            self.eviction.reopen(address, unpacked(point.eviction))


def open_services(stack: contextlib.ExitStack, wanted: WantedServices) -> Services:
    """Start the services that have no address, and open a session with each; `stack` ends both.

    Raises BackendError.
    """
    embedded = stack.enter_context(
        EmbeddedServices(
            scheduler=not wanted.scheduler_address,
            eviction=wanted.eviction is not None and not wanted.eviction_address,
            in_process=wanted.in_process,
            warms_up=wanted.warms_up,
            compiling=wanted.compiling,
            configuration=wanted.scheduler.kube_scheduler_configuration,
        )
    )
    for left in reversed(range(_OPENINGS_MAX)):
        try:
            return _opened(stack, wanted, embedded)
        except ServiceLostError:
            if not (left and wanted.restarts and embedded.processes):
                raise
            embedded.restart()
    raise BackendError("the services opened no session")


def _opened(
    stack: contextlib.ExitStack, wanted: WantedServices, embedded: EmbeddedServices
) -> Services:
    address = wanted.scheduler_address
    scheduler = SchedulerService(
        address or embedded.addresses["scheduler"],
        wanted.scheduler,
        wanted.tls if address else wanted.tls.plain,
    )
    stack.callback(scheduler.close)
    eviction = None
    if wanted.eviction is not None:
        address = wanted.eviction_address
        eviction = EvictionService(
            address or embedded.addresses["eviction"],
            wanted.eviction,
            wanted.tls if address else wanted.tls.plain,
        )
        stack.callback(eviction.close)
    return Services(wanted=wanted, embedded=embedded, scheduler=scheduler, eviction=eviction)
