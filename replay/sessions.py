"""The services of one replay: those that it starts, and its sessions with them.

A session can be opened again, as in a checkpoint or as at the beginning; a child process can be
started again, then at another address.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from replay.backends.processes import Compiling, EmbeddedServices
from replay.backends.services import AutoscalerService, EvictionService, SchedulerService
from replay.errors import BackendError, ServiceLostError
from replay.results.run.resume_point import ResumePoint, unpacked
from replay.settings import ReplaySettings

_OPENINGS_MAX = 3
"""How often child processes are started where one of them ends before its session is open."""


@dataclass(slots=True, kw_only=True)
class Services:
    """The sessions of a replay, and the child processes among the services."""

    settings: ReplaySettings
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
        ignored = self.settings.not_bound(self.scheduler.opened.config)
        if ignored:
            name = self.scheduler.implementation
            warnings.append(
                f"the scheduler at {self.settings.scheduler_address}{f' ({name})' if name else ''} "
                f"does not follow {', '.join(ignored)}: it reports no such setting in "
                "Session.config, and decides without it"
            )
        return warnings

    def restart(self) -> None:
        """Start the child processes again. Raises BackendError; ServiceLostError if one ends."""
        if self.embedded.addresses:
            self.embedded.restart()

    def reopen(self, point: ResumePoint) -> None:
        """Open new sessions, as at the checkpoint or, without one, as at the beginning.

        Raises BackendError; a ServiceLostError if a service cannot be reached.
        """
        addresses = self.embedded.addresses
        address = self.settings.scheduler_address or addresses["scheduler"]
        self.scheduler.reopen(address, unpacked(point.scheduler), point.rounds)
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
            scheduler=not settings.scheduler_address,
            eviction=settings.models.eviction and not settings.eviction_address,
            autoscaler=settings.autoscaler is not None and not settings.autoscaler_address,
            in_process=bool(settings.in_process),
            warms_up=warms_up,
            compiling=compiling,
            configuration=settings.kube_scheduler_configuration or "",
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
    address = settings.scheduler_address
    scheduler = SchedulerService(
        address or embedded.addresses["scheduler"],
        settings.scheduler,
        settings.tls if address else settings.tls.plain,
    )
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
        embedded=embedded,
        scheduler=scheduler,
        eviction=eviction,
        autoscaler=autoscaler,
    )
