"""The services of one replay: those that it starts, and its sessions with them.

A session can be opened again, as in a checkpoint or as at the beginning; a child process can be
started again, then at another address.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from replay.backends.processes import Compiling, EmbeddedServices
from replay.backends.services import AutoscalerService, EvictionService, SchedulerService
from replay.errors import BackendError, ServiceLostError
from replay.results.run.resume_point import ResumePoint, unpacked
from replay.settings import ReplaySettings
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2
from services.rpc.access import ClientTls

_OPENINGS_MAX = 3
"""How often child processes are started where one of them ends before its session is open."""


@dataclass(slots=True, kw_only=True)
class Services:
    """The sessions of a replay, and the child processes among the services.

    in_force: the settings of the present scheduler, which a restart may change.
    """

    settings: ReplaySettings
    in_force: ReplaySettings
    embedded: EmbeddedServices
    scheduler: SchedulerService
    eviction: EvictionService | None
    autoscaler: AutoscalerService | None

    @property
    def are_resumable(self) -> bool:
        """Return whether every session can be saved and restored."""
        sessions = (self.scheduler, self.eviction, self.autoscaler)
        return all(session is None or session.opened.resumable for session in sessions)

    @property
    def warnings(self) -> Sequence[str]:
        """Return what of the configuration does not take effect, one sentence each."""
        sessions = (self.scheduler, self.eviction)
        warnings = [text for session in sessions if session for text in session.opened.warnings]
        ignored = self.in_force.not_bound(self.scheduler.opened.config)
        if ignored:
            name = self.scheduler.implementation
            warnings.append(
                f"the scheduler at {self.in_force.scheduler_address}{f' ({name})' if name else ''} "
                f"does not follow {', '.join(ignored)}: it reports no such setting in "
                "Session.config, and decides without it"
            )
        return warnings

    def restart_scheduler(self, at_ns: int, events: Iterable[scheduler_pb2.Event]) -> None:
        """Open a new session with the scheduler in force from `at_ns` on, and send it `events`.

        Raises BackendError; ServiceLostError if the scheduler cannot be reached.
        """
        self._reopen_scheduler(at_ns, (), self.scheduler.rounds)
        self.scheduler.list_objects(events, at_ns)

    def _reopen_scheduler(
        self, at_ns: int | None, chunks: Sequence[session_pb2.CheckpointChunk], rounds: int
    ) -> None:
        self.in_force = settings = self.settings.scheduler_at(at_ns)
        address, tls = _scheduler_at(settings, self.embedded)
        self.scheduler.reconfigure(settings.scheduler, tls)
        self.scheduler.reopen(address, chunks, rounds)

    def restart(self) -> None:
        """Start the child processes again. Raises BackendError; ServiceLostError if one ends."""
        if self.embedded.addresses:
            self.embedded.restart()

    def reopen(self, point: ResumePoint) -> None:
        """Open new sessions, as at the checkpoint or, without one, as at the beginning.

        Raises BackendError; a ServiceLostError if a service cannot be reached.
        """
        addresses = self.embedded.addresses
        at_ns = point.at_ns if point.scheduler else None
        self._reopen_scheduler(at_ns, unpacked(point.scheduler), point.rounds)
        if self.eviction is not None:
            address = self.settings.eviction_address or addresses["eviction"]
            self.eviction.reopen(address, unpacked(point.eviction))
        if self.autoscaler is not None:
            address = self.settings.autoscaler_address or addresses["autoscaler"]
            self.autoscaler.reopen(address, unpacked(point.autoscaler))


def open_services(
    stack: contextlib.ExitStack,
    settings: ReplaySettings,
    *,
    warms_up: bool = False,
    compiling: Compiling = lambda _done, _all: None,
) -> Services:
    """Start the services that have no address, and open a session with each; `stack` ends both.

    warms_up, compiling: as EmbeddedServices has them. Raises BackendError.
    """
    embedded = stack.enter_context(
        EmbeddedServices(
            scheduler=not all(used.scheduler_address for used in settings.schedulers),
            eviction=settings.models.eviction and not settings.eviction_address,
            autoscaler=settings.autoscaler is not None and not settings.autoscaler_address,
            in_process=bool(settings.in_process),
            warms_up=warms_up,
            compiling=compiling,
            configurations=[
                used.kube_scheduler_configuration or "" for used in settings.schedulers
            ],
        )
    )
    for tries in reversed(range(_OPENINGS_MAX)):
        try:
            return _opened(stack, settings, embedded)
        except ServiceLostError:
            if not (tries and settings.reconnect_ns != 0 and embedded.processes):
                raise
            embedded.restart()
    raise BackendError("the services opened no session")


def _opened(
    stack: contextlib.ExitStack, settings: ReplaySettings, embedded: EmbeddedServices
) -> Services:
    for later in settings.schedulers[1:]:
        # A refused configuration, or an address without a service, is found before the run begins.
        address, tls = _scheduler_at(later, embedded)
        SchedulerService(address, later.scheduler, tls).close()
    address, tls = _scheduler_at(settings, embedded)
    scheduler = SchedulerService(address, settings.scheduler, tls)
    stack.callback(scheduler.close)
    eviction = None
    if settings.models.eviction:
        address = settings.eviction_address
        eviction = EvictionService(
            address or embedded.addresses["eviction"],
            settings.eviction,
            settings.tls if address else settings.tls.plain,
        )
        stack.callback(eviction.close)
    autoscaler, autoscaling = None, settings.autoscaling
    if autoscaling is not None:
        address = settings.autoscaler_address
        autoscaler = AutoscalerService(
            address or embedded.addresses["autoscaler"],
            autoscaling.config,
            settings.tls if address else settings.tls.plain,
        )
        stack.callback(autoscaler.close)
    return Services(
        settings=settings,
        in_force=settings,
        embedded=embedded,
        scheduler=scheduler,
        eviction=eviction,
        autoscaler=autoscaler,
    )


def _scheduler_at(settings: ReplaySettings, embedded: EmbeddedServices) -> tuple[str, ClientTls]:
    """Return the address of a scheduler, and how to connect to it."""
    if settings.scheduler_address:
        return settings.scheduler_address, settings.tls
    return embedded.addresses["scheduler"], settings.tls.plain
