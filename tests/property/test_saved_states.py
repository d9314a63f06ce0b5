"""A random world that is saved between two instants continues as if it had not been."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from replay.generate.workload import GenerateOptions
from replay.state_codec import dump_parts, restore_parts
from replay.world.api.cluster import Cluster
from replay.world.loop.replay import Limits, Replay
from replay.world.models import Models
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS
from tests.property.test_world import RandomScheduler, meddled


class _SavedError(Exception):
    """The run is left where it was saved."""


class Unwatched:
    """Records nothing."""

    def round_sent(self, round_: object) -> None:
        """Ignore it."""

    def outcomes(self, round_: object, outcomes: object) -> None:
        """Ignore them."""


class _Run:
    """A run whose world is replaced, after some instants, by what was saved of it."""

    def __init__(self, seed: int, options: GenerateOptions) -> None:
        self._options, self._seed = options, seed
        self._scheduler = RandomScheduler(seed)
        self.entries: list[trace_pb2.Decision] = []
        self.saved = 0

    def play(self, save_after: list[int]) -> None:
        """Run to the end; `save_after` are numbers of instants, ascending."""
        replay = self._new()
        while True:
            ahead = [number for number in save_after if number > replay.instants]

            def stop(_now_ns: int, _cluster: Cluster) -> None:
                if ahead and replay.instants == ahead[0]:  # noqa: B023 - called in this turn
                    raise _SavedError

            try:
                replay.run(iter(meddled(self._seed, self._options)), Limits(progress=stop))
            except _SavedError:
                data = dump_parts(replay)
                replay = self._new()
                restore_parts(replay, data)
                assert dump_parts(replay) == data
                self.saved += 1
            else:
                return

    def _new(self) -> Replay:
        self._scheduler.cluster = Cluster()
        return Replay(
            self._scheduler,
            None,
            models=Models(),
            sink=self.entries.append,
            observer=Unwatched(),
            cluster=self._scheduler.cluster,
        )


@settings(max_examples=6)
@given(seed=st.integers(0, 2**16))
def test_a_world_that_is_saved_and_restored_decides_the_same(seed: int) -> None:
    """At random instants, several times in a run; saved again it has the same bytes."""
    options = GenerateOptions(
        seed=seed,
        nodes=4,
        pods=40,
        deployments=3,
        budgets=6,
        window_ns=90 * SECOND_NS,
        service_ns=40 * SECOND_NS,
    )
    chance = Random(seed)  # noqa: S311 - chance makes the cases
    undisturbed, saved = _Run(seed, options), _Run(seed, options)
    undisturbed.play([])
    saved.play(sorted(chance.sample(range(1, 60), 8)))
    assert saved.saved > 3
    assert saved.entries == undisturbed.entries
