"""The recorded scripts of upstream's eviction manager: their pods, and how a run is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from replay.conform.vectors import Json

MS = 1_000_000
_DISK_INFO_FAILED = "failed to get HasDedicatedImageFs: "


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
    expected = {"error": "", "admit": [], "kill_failures": [], "condition_messages": [], **recorded}
    for key, value in seen.items():
        if key == "any_of":
            options = [
                {**each, "pod_order": each["pod_order"][:ranked_max]} for each in expected["any_of"]
            ]
            if value not in options:
                return f"{value}\n  none of {options}"
        elif key == "error" and _kubelets_words(value) == _kubelets_words(expected[key]):
            continue
        elif value != expected[key]:
            return f"{key} {value}, expected {expected[key]}"
    return ""


def _kubelets_words(error: str) -> str:
    """Return why a step ended, without what its provider of disk information said in its own words.

    The contract says that the provider failed, and not how.
    """
    words, mark, _ = error.partition(_DISK_INFO_FAILED)
    return words + mark
