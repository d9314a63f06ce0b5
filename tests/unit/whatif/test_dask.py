"""A sweep on a Dask cluster: the same cells, run by its workers."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from replay.whatif import sweep
from replay.whatif.replay_processes import CellError, ReplayProcesses
from replay.whatif.sweep import cells, parse_axis, run_sweep

distributed = pytest.importorskip("dask.distributed", reason='needs the extra "sweep"')


def stand_in(folder: str, arguments: tuple[str, ...], replays: ReplayProcesses) -> dict[str, float]:
    """Stand for a replay: the figure is the seed, and seed 3 fails."""
    del replays
    assert Path(folder).is_absolute()
    if arguments[-1] == "3":
        raise CellError("no room")
    return {"bound": float(arguments[-1])}


def test_workers_of_a_cluster_run_the_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures come back in the grid's order, and a failure with its words."""
    monkeypatch.setattr(sweep, "run_cell", stand_in)
    grid = list(cells([parse_axis("seed=1..3")], ["trace.ktr"]))
    seen: list[int] = []
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        found = run_sweep(
            tmp_path / "out",
            grid,
            workers=1,
            dask=cluster.scheduler_address,
            report=lambda _each, ended, _total: seen.append(ended),
        )
    assert [run.figures.get("bound") for run in found] == [1.0, 2.0, None]
    assert found[2].problem == "no room"
    assert seen == [1, 2, 3]


def test_a_sweep_that_is_interrupted_stops_the_replays_of_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They look at an event of the cluster; another sweep's replays go on."""
    stopped, running = threading.Event(), threading.Event()

    def endless(
        folder: str, arguments: tuple[str, ...], replays: ReplayProcesses
    ) -> dict[str, float]:
        del folder
        monkeypatch.setattr(replays, "stop", stopped.set)
        if arguments[-1] == "1":
            return {"bound": 1.0}
        running.set()
        assert stopped.wait(60)
        raise CellError("stopped")

    def interrupt(*_: object) -> None:
        assert running.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "run_cell", endless)
    grid = list(cells([parse_axis("seed=1..2")], ["trace.ktr"]))
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        with pytest.raises(KeyboardInterrupt):
            run_sweep(
                tmp_path / "out", grid, workers=1, dask=cluster.scheduler_address, report=interrupt
            )
        assert stopped.wait(30)
