"""The recorded scripts of upstream's eviction manager, and how a run of one is compared.

They lie outside the repository, in the folder `shared` beside it; without them, tests skip.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

GOLDEN = Path(__file__).resolve().parents[1].parent / "shared" / "golden"
MS = 1_000_000
Json = dict[str, Any]


def scripts(mode: str) -> Iterator[Json]:
    """Yield the scripts recorded of the kubelet `mode`; skip the test where they are missing."""
    path = GOLDEN / f"eviction-{mode}-dev.jsonl.gz"
    if not path.exists():
        pytest.skip(f"the shared golden vectors are not here ({path.name})")
    with gzip.open(path) as lines:
        for line in lines:
            yield orjson.loads(line)


def pod_key(pod: Json) -> str:
    """Return a scripted pod's key, which serves as its UID."""
    return f"{pod.get('ns', 'default')}/{pod['name']}"


class ScriptedPods:
    """The pods that a script's node lists, by key, in its order."""

    def __init__(self) -> None:
        self.plain: dict[str, Json] = {}

    def change(self, step: Json) -> None:
        """Apply what a step says of the pods."""
        if "set_pods" in step:
            self.plain = {pod_key(each): each for each in step["set_pods"]}
        for key in step.get("remove_pods") or []:
            self.plain.pop(key, None)
        for each in step.get("add_pods") or []:
            self.plain[pod_key(each)] = each
        for key, stats in (step.get("pod_stats") or {}).items():
            if key in self.plain:
                self.plain[key] = {**self.plain[key], "stats": stats}


def script_differences(
    script: Json, take: Callable[[Json], Json], *, ranked_max: int | None = None
) -> Iterator[str]:
    """Yield the first difference that playing the script's steps with `take` shows, if any.

    `ranked_max` is how much of the ranking can be seen; None: all.
    """
    steps = zip(script["script"], script["expected"], strict=True)
    for number, (step, recorded) in enumerate(steps):
        difference = step_difference(take(step), recorded, ranked_max=ranked_max)
        if difference:
            yield f"{script['id']} step {number}: {difference}"
            return


def step_difference(seen: Json, recorded: Json, *, ranked_max: int | None = None) -> str:
    """Return how what was `seen` differs from what was recorded; empty where it does not.

    Upstream iterates over maps, so `any_of` holds each outcome that it may have.
    """
    expected = {"error": "", "admit": [], **recorded}
    for key, value in seen.items():
        if key == "any_of":
            options = [
                {**each, "pod_order": each["pod_order"][:ranked_max]} for each in expected["any_of"]
            ]
            if value not in options:
                return f"{value}\n  none of {options}"
        elif value != expected[key]:
            return f"{key} {value}, expected {expected[key]}"
    return ""
