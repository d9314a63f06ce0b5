"""Searches on clusters whose answers are reasoned by hand, and what a search keeps.

The cluster is examples/clusters/bakery.yaml. Its nodes of pool general have 4 CPUs each, of which
1,400m, 900m, 1,400m and 400m are free, so that five more web pods of 500m fit beside the four that
there are; a sixth preempts a report (1 CPU), which then fits nowhere. Nine pods of 1 CPU and five
of 500m fit on four such nodes; on three, which take three pods of 1 CPU and one of 500m each beside
their agent, two of 500m wait. The three pods of pool gpu need a GPU each, and its nodes have two.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from replay import recovery
from replay.cli.errors import REFUSED
from replay.results.run.directory import RunDirectory
from replay.whatif import sweep
from replay.whatif.facts import read_facts
from tests.e2e.commands import reprieve
from tests.e2e.replays import ROOT

pytestmark = pytest.mark.e2e

BAKERY = str(ROOT / "examples" / "clusters" / "bakery.yaml")
WEB = ("--vary", "deployment.shop/web.replicas=1..40")
WHOLE = ("--until", "pending == 0")
BORDER = "deployment.shop/web.replicas: holds at 9, fails at 10 (pending == 0: it is 1 pod)."


def asked(folder: Path, *arguments: str, **options: Any) -> dict[str, Any]:
    """Return the answer of a search as JSON."""
    done = reprieve(folder, "seek", BAKERY, *arguments, "-o", "json", **options)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def runs_in(folder: Path) -> int:
    """Return the number of complete or begun runs in the folder of a search."""
    return len(list(folder.glob("cells/*/run/manifest.json")))


def test_a_search_names_the_border_and_its_two_runs(tmp_path: Path) -> None:
    """With what was tried, and the comparison of the two."""
    done = reprieve(tmp_path, "seek", BAKERY, *WEB, *WHOLE, "--run", "s", COLUMNS="100")
    lines = done.stdout.splitlines()
    assert lines[:2] == [BORDER, "Tried 9 of 40 values."]
    assert lines[3] == "VALUE   CHECKS   pending"
    assert [line.split() for line in lines[4:13]] == [
        ["1", "holds", "0"], ["6", "holds", "0"], ["8", "holds", "0"], ["9", "holds", "0"],
        ["10", "fails", "1"], ["11", "fails", "1"], ["21", "fails", "9"], ["30", "fails", "18"],
        ["40", "fails", "28"],
    ]  # fmt: skip
    answer = asked(tmp_path, *WEB, *WHOLE, "--run", "s")
    [border] = answer["borders"]
    assert border["adjacent"]
    for run, replicas in zip(border["runs"], (9, 10), strict=True):
        manifest = RunDirectory.open(tmp_path / run).manifest()
        overrides = manifest.configuration["overrides"]
        assert overrides["set"] == [f"deployment.shop/web.replicas={replicas}"]
    assert [answer["compare"][name] for name in "ab"] == border["runs"]
    words = shlex.split(" ".join(lines).partition("All of it: ")[2])
    assert words == ["reprieve", "compare", *border["runs"]]


def test_a_search_goes_on_where_its_budget_ended_it_and_replays_nothing_again(
    tmp_path: Path,
) -> None:
    """What is between the two values then is said not to have been tried."""
    first = asked(tmp_path, *WEB, *WHOLE, "--run", "s", "--max-runs", "6")
    assert first["answer"] == [
        "deployment.shop/web.replicas: holds at 6, fails at 11 (pending == 0: it is 1 pod).",
        "Values between the two were not tried: the budget ended the search.",
        "Tried 6 of 40 values; the budget ended the search.",
    ]
    assert runs_in(tmp_path / "s") == 6
    done = asked(tmp_path, *WEB, *WHOLE, "--run", "s", "--max-runs", "3")
    assert done["answer"] == [BORDER, "Tried 9 of 40 values."]
    assert runs_in(tmp_path / "s") == 9
    with mock.patch.object(sweep, "run_into", side_effect=AssertionError("nothing is left to run")):
        assert asked(tmp_path, *WEB, *WHOLE, "--run", "s")["answer"] == done["answer"]


def test_the_best_runs_alone_are_kept_and_the_answer_needs_no_others(tmp_path: Path) -> None:
    """Outcomes outlive their runs; another check makes the runs that it reads once more."""
    kept = asked(tmp_path, *WEB, *WHOLE, "--run", "s", "--keep", "best")
    assert runs_in(tmp_path / "s") == 2
    assert all((tmp_path / run / "manifest.json").is_file() for run in kept["borders"][0]["runs"])
    with mock.patch.object(sweep, "run_into", side_effect=AssertionError("nothing is left to run")):
        assert asked(tmp_path, *WEB, *WHOLE, "--run", "s")["tried"] == kept["tried"]
    other = asked(tmp_path, *WEB, "--until", "preempted == 0", "--run", "s")
    assert other["answer"][0].endswith("holds at 9, fails at 10 (preempted == 0: it is 1).")


def test_a_value_that_is_the_traces_own_is_tried_and_a_misspelt_name_is_refused(
    tmp_path: Path,
) -> None:
    """Minus no node changes nothing; a change is against the replay without the knob."""
    nodes = ("--vary", "scale-nodes=pool=gpu:-0..-2", "--until", "pending.change <= 0")
    order = ("--scale-order", "least-used")
    done = reprieve(tmp_path, "seek", BAKERY, *nodes, "--run", "s", "--no-explain", "--", *order)
    assert done.stdout.splitlines()[:2] == [
        "nodes of pool=gpu: holds at -1, fails at -2 (pending.change <= 0: it is 1 pod).",
        "All 3 values were tried: the smallest that holds is -0, the largest -1.",
    ]
    knob = ("--vary", "deployment.shop/wbe.replicas=1..9")
    done = reprieve(tmp_path, "seek", BAKERY, *knob, *WHOLE, code=REFUSED)
    assert "did you mean shop/web?" in done.stderr
    assert not list((tmp_path / "runs").iterdir())
    check = ("--until", "pending{namespace=shp} == 0")
    done = reprieve(tmp_path, "seek", BAKERY, *WEB, *check, code=REFUSED)
    assert "did you mean shop?" in done.stderr


def test_a_run_is_read_once_for_its_figures_and_all_checks(tmp_path: Path) -> None:
    """Also the baseline's, with which each other run is compared; a large one takes long."""
    nodes = ("--vary", "scale-nodes=pool=gpu:-0..-2", "--no-explain")
    checks = ("--until", "pending.change <= 0", "--until", "preempted.change <= 0")
    once = mock.patch("replay.search.runs.read_facts", side_effect=AssertionError("read again"))
    with once, mock.patch("replay.whatif.sweep.read_facts", wraps=read_facts) as reading:
        answer = asked(tmp_path, *nodes, *checks, "--run", "s")
        assert reading.call_count == runs_in(tmp_path / "s") == len(answer["tried"]) + 1
        assert asked(tmp_path, *nodes, *checks, "--run", "s")["tried"] == answer["tried"]
        assert reading.call_count == runs_in(tmp_path / "s")


def test_from_a_moment_on_the_replays_share_what_is_before_it(tmp_path: Path) -> None:
    """Also in a search that goes on where the run that had the beginning was not kept."""
    sizes = ("--nodes", "6", "--pods", "60", "--deployments", "2", "--seed", "7")
    reprieve(tmp_path, "generate", "-o", "c.ktr", *sizes)
    knob = ("--vary", "scale-nodes=-0..-5", "--at", "5m", "--until", "pending == 0")
    common = ("seek", "c.ktr", *knob, "--no-explain", "-o", "json")
    keep = ("--", "--keep-checkpoints", "30", "--no-eviction")
    with (
        mock.patch.object(recovery, "KEPT_SHARE", float("inf")),
        mock.patch.object(recovery, "LOOK_NS", 0),
    ):
        whole = reprieve(tmp_path, *common, "--run", "s", *keep)
        reprieve(tmp_path, *common, "--run", "t", "--max-runs", "2", "--keep", "best", *keep)
        cut = reprieve(tmp_path, *common, "--run", "t", *keep)
    shared = [
        RunDirectory.open(path.parent).manifest().shared is not None
        for path in tmp_path.glob("s/cells/*/run/manifest.json")
    ]
    assert sum(shared) == len(shared) - 1 > 2
    said = f"{sum(shared)} runs of {len(shared)} begin with what others played: "
    assert said in " ".join(whole.stderr.split())
    answers = [json.loads(done.stdout) for done in (whole, cut)]
    tried = [[(one["at"], one["figures"]) for one in answer["tried"]] for answer in answers]
    assert tried[0] == tried[1]


def test_two_knobs_have_a_front(tmp_path: Path) -> None:
    """Two nodes of pool gpu and four of pool general: neither can be fewer, whatever the other."""
    pools = ("--vary", "scale-nodes=pool=gpu:=1..=4", "--vary", "scale-nodes=pool=general:=2..=6")
    answer = asked(tmp_path, *pools, *WHOLE, "--no-explain")
    assert answer["front"] == [
        {"nodes of pool=gpu": "pool=gpu:=2", "nodes of pool=general": "pool=general:=4"}
    ]
    tried = {tuple(one["at"].values()): one["holds"] for one in answer["tried"]}
    assert tried["pool=gpu:=1", "pool=general:=4"] is False
    assert tried["pool=gpu:=2", "pool=general:=3"] is False


def test_seeds_must_all_hold_and_figures_are_minimised(tmp_path: Path) -> None:
    """A value is a replay for each seed; the smallest figure is among the values that hold."""
    knob = ("--vary", "scale-nodes=pool=general:=3..=5", "--minimise", "allocated{resource=cpu}")
    answer = asked(tmp_path, *knob, *WHOLE, "--seeds", "2", "--run", "s", "--no-explain")
    assert [len(one["runs"]) for one in answer["tried"]] == [2, 2, 2]
    assert answer["best"] == {"nodes of pool=general": "pool=general:=5"}
    best = "Smallest where it holds, of all values: 5 (allocated{resource=cpu} "
    assert answer["answer"][1].startswith(best)


def test_a_search_has_a_page_of_its_own(tmp_path: Path) -> None:
    """One file, with the answer, what was tried, and the comparison of the border's runs."""
    reprieve(tmp_path, "seek", BAKERY, *WEB, *WHOLE, "-q", "--html", "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert BORDER in page
    for title in ("What was tried", "What was changed", "The first different decision"):
        assert title in page


def test_a_search_on_a_dask_cluster_has_the_same_answer(tmp_path: Path) -> None:
    """Its workers make the replays; what they share with others is left out."""
    distributed = pytest.importorskip("dask.distributed", reason='needs the extra "sweep"')
    knob = ("--vary", "deployment.shop/web.replicas=9,10")
    here = asked(tmp_path, *knob, *WHOLE, "--run", "here")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        dask = ("--dask", cluster.scheduler_address)
        there = asked(tmp_path, *knob, *WHOLE, "--run", "there", *dask, children=True)
    assert there["answer"] == here["answer"]
    tried = [[(one["at"], one["figures"]) for one in answer["tried"]] for answer in (here, there)]
    assert tried[0] == tried[1]
