"""The page of a sweep: its grid, and figures over each parameter."""

from __future__ import annotations

import json
import re
from typing import Any

from replay.report.swept import sweep_page
from replay.whatif.sweep_table import FigureSpread, SweepRow


def row(nodes: str, rules: str, bound: float, *, is_baseline: bool = False) -> SweepRow:
    """Return a place of two seeds."""
    spread = FigureSpread(mean=bound, deviation=1.0, least=bound - 1, most=bound + 1, count=2)
    place = (("scale-nodes", nodes), ("rules", rules))
    return SweepRow(place=place, figures={"bound": spread}, is_baseline=is_baseline)


def _charts(text: str) -> Any:
    found = re.search(r'id="report">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_each_figure_is_drawn_over_each_parameter() -> None:
    """A line for each place on the other axes; a value that a place lacks is a gap."""
    rows = [
        row("0.8", "v1.34", 8),
        row("1.0", "v1.34", 10, is_baseline=True),
        row("1.0", "<i>", 11),
    ]
    text = sweep_page("out", rows, ["bound"])
    charts = _charts(text)
    over_nodes = charts["over-0"]["charts"]["bound"]
    assert over_nodes["xAxis"]["data"] == ["0.8", "1.0 (baseline)"]
    drawn = {over_node["name"]: over_node["data"] for over_node in over_nodes["series"]}
    assert drawn == {"rules=v1.34": [8.0, 10.0], "rules=<i>": [None, 11.0]}
    assert charts["over-1"]["charts"]["bound"]["xAxis"]["data"] == ["v1.34 (baseline)", "<i>"]
    assert "Baseline scale-nodes=1.0, rules=v1.34" in text
    assert "<td>10 ± 1</td><td>baseline</td>" in text
    assert "<i>" not in text


def test_a_sweep_of_failed_replays_has_a_page() -> None:
    """With the places, and without a chart."""
    text = sweep_page("out", [SweepRow(place=(("rules", "x"),), figures={}, failed=3)], ["bound"])
    assert "<dt>failed runs</dt><dd>3</dd>" in text
    assert "No replay has figures." in text
