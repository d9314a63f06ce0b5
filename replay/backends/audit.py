"""The audit of a scheduler that a replay did not start: our filters, within this process."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from replay.errors import ConfigurationError
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.in_process import placement_audit
from services.rpc.errors import RefusalError, UnavailableError


class Audit(Protocol):
    """Judges each decision in the state that its scheduler had been sent.

    `stopped` is why it does not any more, "" while it does.
    """

    stopped: str

    def judge(
        self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes
    ) -> Mapping[tuple[str, int], Sequence[tuple[str, str]]]:
        """Return the invalid outcomes of a message by pop (UID and cycle): causes and messages."""

    def catch_up(
        self, rounds: Iterable[scheduler_pb2.Round], nodes_of_pods: Mapping[str, str]
    ) -> None:
        """Take the rounds that a resumed run has sent, and the nodes of its pods by UID."""


def open_audit(config: scheduler_pb2.SchedulerConfig, scheduler_names: Collection[str]) -> Audit:
    """Return the audit of a session with that configuration, which takes pods of those names.

    Raises ConfigurationError where our scheduler does not take the configuration.
    """
    try:
        return placement_audit(config, scheduler_names)
    except (RefusalError, UnavailableError) as error:
        raise ConfigurationError(str(error)) from error
