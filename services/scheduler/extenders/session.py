"""A session's extenders, with the objects that they are sent and the responses of each cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.scheduler.config.extenders import ExtenderConfig
from services.scheduler.extenders.answers import (
    ExtenderAnswers,
    RecordingExtender,
    ReplayedExtender,
)
from services.scheduler.extenders.connect import ConnectedExtender, terms_of
from services.scheduler.extenders.grpc_extender import ExtenderObjects


class SessionExtenders:
    """The extenders of a session, `connected` in the order of their configurations.

    `connect` returns those of `configs`, which are sent `objects`; without it their recorded
    responses are replayed. `answers` are the responses of the cycle that runs.
    """

    def __init__(
        self,
        configs: Sequence[ExtenderConfig] = (),
        connect: Callable[[ExtenderObjects], Iterable[ConnectedExtender]] | None = None,
    ) -> None:
        self.objects = ExtenderObjects()
        self.answers = ExtenderAnswers()
        self.connected: tuple[ConnectedExtender, ...]
        if connect is None:
            self.connected = tuple(
                ReplayedExtender(terms_of(config), self.answers) for config in configs
            )
        else:
            self.connected = tuple(
                RecordingExtender(extender, self.answers) for extender in connect(self.objects)
            )

    def take_round(self, round_: scheduler_pb2.Round) -> None:
        """Keep what a round brings for extenders: nodes to send, and recorded responses."""
        if self.connected:
            self.objects.take_nodes(round_)
            self.answers.load(round_)

    def close(self) -> None:
        """Give up what the extenders hold."""
        for extender in self.connected:
            extender.close()
