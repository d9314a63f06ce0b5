"""Replays for the tests: a trace through real services, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from replay.backends.processes import EmbeddedServices
from replay.importers.registry import open_trace
from replay.runner import FinishedReplay, run_replay
from replay.settings import ReplaySettings
from replay.world.models import Models
from reprieve.trace.v1beta1 import trace_pb2
from services.telemetry.span import Sampling

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT / ".." / "shared"
NO_SPANS = Sampling(0.0)
DEMOS = ROOT / "examples" / "traces"


@dataclass(frozen=True, slots=True)
class Bound:
    """A pod's binding, and the victims that made room for it, by name."""

    node: str
    victims: tuple[str, ...]


def run(
    services: EmbeddedServices,
    records: Iterable[trace_pb2.Record],
    run_path: Path,
    *,
    seed: int = 0,
    rules: str = "v1.34",
    batch_size: int = 0,
    models: Models | None = None,
    sampling: Sampling = NO_SPANS,
    configuration: str = "",
    checkpoint_every_ns: int = 10_000_000_000,
) -> FinishedReplay:
    """Replay records through the services and leave the run in `run_path`."""
    settings = ReplaySettings(
        version="test",
        scheduler_address=services.addresses["scheduler"],
        eviction_address=services.addresses["eviction"],
        seed=seed,
        rules=rules,
        batch_size=batch_size,
        kube_scheduler_configuration=configuration,
        run_path=run_path,
        sampling=sampling,
        checkpoint_every_ns=checkpoint_every_ns,
    ).assuming(models or Models())
    return run_replay(settings, lambda: iter(records), lambda _now_ns, _cluster, _tally: None)


def trace(paths: Sequence[Path]) -> list[trace_pb2.Record]:
    """Read a trace of any format."""
    return list(open_trace(list(paths)))


def bindings(finished: FinishedReplay) -> dict[str, Bound]:
    """Return each pod's last binding by name, with the victims of its nomination."""
    victims: dict[str, tuple[str, ...]] = {}
    found: dict[str, Bound] = {}
    for decision in finished.run.decisions():
        observed = decision.observed
        name = observed.object.name
        if observed.HasField("nominated") and observed.nominated.node_name:
            victims[name] = tuple(victim.name for victim in observed.nominated.victims)
        elif observed.HasField("scheduled") and not decision.refused:
            found[name] = Bound(observed.scheduled.node_name, victims.get(name, ()))
    return found
