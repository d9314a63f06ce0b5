"""When a decision was taken that was carried out later, since cycles and bindings cost time."""

from __future__ import annotations

from dataclasses import replace

from replay.explain.target import Target
from replay.results.errors import RunError
from replay.results.manifest import Manifest
from replay.results.run_directory import RunDirectory


def with_moment(run: RunDirectory, manifest: Manifest, target: Target) -> Target:
    """Return the target with the round in which it was decided. Raises RunError.

    The log tells when a decision was carried out: a cycle's cost later, and a binding's beyond it.
    Of several rounds of that moment the last one took a pod.
    """
    entry = target.entry
    cycle_ns = int(manifest.models.get("cycle_cost_ns", 0))
    bind_ns = int(manifest.models.get("bind_cost_ns", 0))
    if entry is None or not (cycle_ns or bind_ns):
        return target
    cost_ns = cycle_ns + (bind_ns if entry.observed.HasField("scheduled") else 0)
    at_ns = entry.at_ns - cost_ns
    number = max((each.round for each in run.rounds() if each.at_ns == at_ns), default=None)
    if number is None:
        raise RunError(f"the run's history holds no round in which {target.life.key} was decided")
    return replace(target, decided=(at_ns, number), ahead=0)
