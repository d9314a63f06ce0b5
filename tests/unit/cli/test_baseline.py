"""The values of a sweep's axes with which a replay equals one without the axis."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.cli.baseline import is_baseline, own_values
from replay.whatif.sweep import cells, parse_axis
from tests.e2e.replays import DEMOS

NGINX = str(DEMOS / "nginx-preemption.jsonl")
SCHEDULER = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podMaxBackoffSeconds: 20
"""


@pytest.mark.parametrize(
    ("axis", "own"),
    [
        ("scale-nodes=0.5,1.0,+0,=1,+1", {"1.0", "+0", "=1"}),
        ("set:priorityClass.high-priority.value=0,1000000", {"1000000"}),
        ("set:priorityClass.none.value=1,2", set()),
        ("set:podMaxBackoffSeconds=10,20", {"20"}),
        ("rules=v1.16,v1.34,v1.36", {"v1.34"}),
        ("disable-preemption=true,false", {"false"}),
        ("arrivals=cpu=0.5,cpu=1", set()),
        ("seed=0..2", set()),
    ],
)
def test_a_value_that_changes_nothing_is_the_baselines_own(
    tmp_path: Path, axis: str, own: set[str]
) -> None:
    """Of the trace, a configuration file, or an option's default; an unknown name has no value."""
    path = tmp_path / "s.yaml"
    path.write_text(SCHEDULER, encoding="utf-8")
    parsed = parse_axis(axis)
    values = own_values([parsed], [NGINX, "--scheduler-config", str(path)])
    assert {value for _, value in values} == own
    assert {name for name, _ in values} <= {parsed.name}


def test_the_baseline_value_of_every_axis_is_found() -> None:
    """With any seed."""
    axes = [parse_axis("scale-nodes=1.0,2.0"), parse_axis("seed=1..2")]
    own = own_values(axes, [NGINX])
    marked = [is_baseline(cell, own) for cell in cells(axes, [NGINX])]
    assert marked == [True, True, False, False]
    assert not is_baseline(next(cells(axes[1:], [NGINX])), own)
