"""What a scrape of a service's metrics shows."""

from __future__ import annotations

from services.rpc.prometheus import Collect, exposition


def samples(collect: Collect) -> dict[str, float]:
    """Return the samples by their series, as Prometheus' text format writes them."""
    text = exposition(collect)[0].decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {series: float(value) for series, _, value in lines}
