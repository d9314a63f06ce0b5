"""What `seek` claims, beside every value of the range: on generated traces, monotone or not.

A first search replays each value and has the figures of all. A limit between two of them makes a
check with both outcomes, and the searches with that check go on in the same folder, so that they
replay nothing again.
"""

from __future__ import annotations

import json
from itertools import compress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.e2e.commands import reprieve

pytestmark = pytest.mark.e2e

KNOBS = (
    "deployment.app-000.replicas=1..24/2",
    "pods(*).requests*=0.4..1.6/0.1",
    "pods(*).requests.memory*=0.4..2.2/0.15",
    "scale-nodes==1..=12",
    "seed=0..11",
)
FIGURES = ("preempted", "total_wait", "failed_attempts", "bindings", "fragmentation{resource=cpu}")
PROBLEMS = range(30)
SHORT = 1


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed >= SHORT)) for seed in PROBLEMS]
)
def test_every_border_that_is_named_is_one_and_exhaustive_finds_the_optimum(
    seed: int, tmp_path: Path
) -> None:
    """Where the ends of the range differ a border is found, and it is tried on both sides."""
    random = Random(seed)  # noqa: S311 - chance makes the cases
    sizes = ("--nodes", str(random.randrange(2, 5)), "--pods", str(random.randrange(60, 90)))
    more = ("--deployments", "2", "--seed", str(seed), "--window", "4m")
    reprieve(tmp_path, "generate", "-o", "c.ktr", *sizes, *more)
    knob = KNOBS[seed % len(KNOBS)]

    def asked(check: str, *options: str) -> dict[str, Any]:
        search = ("seek", "c.ktr", "--vary", knob, "--until", check, "--run", "s", "--no-explain")
        done = reprieve(tmp_path, *search, "-o", "json", *options, "--", "--no-eviction")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    every = asked("pods >= 0", "--exhaustive")["tried"]
    places = [tuple(one["at"].values()) for one in every]
    varied = [name for name in FIGURES if len({one["figures"][name] for one in every}) > 1]
    figure = random.choice(varied)
    values = [one["figures"][figure] for one in every]
    levels = sorted(set(values))
    above = random.randrange(1, len(levels))
    limit = f"{(levels[above - 1] + levels[above]) / 2:.9f}"
    truth = [value <= float(limit) for value in values]
    assert set(truth) == {True, False}

    answer = asked(f"{figure} <= {limit}")
    for one in answer["tried"]:
        assert one["holds"] == truth[places.index(tuple(one["at"].values()))]
    borders = [
        tuple(places.index(tuple(border[side].values())) for side in ("holds", "fails"))
        for border in answer["borders"]
    ]
    for holds, fails in borders:
        assert (truth[holds], truth[fails], abs(holds - fails)) == (True, False, 1)
    if truth[0] != truth[-1]:
        assert borders

    objective = random.choice(varied)
    best = asked(f"{figure} <= {limit}", "--exhaustive", "--minimise", objective)["best"]
    smallest = min(one["figures"][objective] for one in compress(every, truth))
    found = every[places.index(tuple(best.values()))]
    assert truth[places.index(tuple(best.values()))]
    assert found["figures"][objective] == smallest
