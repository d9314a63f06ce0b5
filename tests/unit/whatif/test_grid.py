"""Grids of runs, their table and their plot."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from replay.whatif.sweep import FinishedCell, GridError, cells, parse_axis
from replay.whatif.sweep_table import cells_csv, plot, table, table_csv


def test_a_range_and_a_list_span_their_cells() -> None:
    """The last axis goes fastest; an override becomes --set."""
    axes = [parse_axis("set:priorityClass.batch.value=0,50"), parse_axis("seed=1..2")]
    all_cells = list(cells(axes, ["trace.ktr"]))
    assert [cell.arguments for cell in all_cells[:2]] == [
        ("trace.ktr", "--set", "priorityClass.batch.value=0", "--seed", "1"),
        ("trace.ktr", "--set", "priorityClass.batch.value=0", "--seed", "2"),
    ]
    assert len({cell.name for cell in all_cells}) == 4
    assert all_cells[0].group == all_cells[1].group != all_cells[2].group


def test_a_grid_that_grows_keeps_the_names_of_its_cells() -> None:
    """So that a sweep continues with what it has."""
    few = {cell.name for cell in cells([parse_axis("seed=1..2")], ["t"])}
    more = {cell.name for cell in cells([parse_axis("seed=1..3")], ["t"])}
    assert few < more


def test_a_flag_is_given_or_left_out() -> None:
    """For true and false."""
    all_cells = list(cells([parse_axis("disable-preemption=true,false")], ["t"]))
    assert [cell.arguments for cell in all_cells] == [("t", "--disable-preemption"), ("t",)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("seed", "write seed=1..10"),
        ("seed=2..1", "a range must ascend"),
        ("seed=1,1", "a value is given twice"),
        ("run=a,b", "--run is set by the sweep itself"),
        ("--x=1", "is not an option of replay"),
        ("seed=1,,2", "a value is empty"),
    ],
)
def test_an_unknown_axis_is_refused(text: str, told: str) -> None:
    """With what to write."""
    with pytest.raises(GridError) as found:
        parse_axis(text)
    assert told in str(found.value)


def finished() -> list[FinishedCell]:
    """Return a grid of two places with three seeds each, one of which failed."""
    grid = cells([parse_axis("rules=v1.34,v1.16"), parse_axis("seed=1..3")], ["t"])
    return [
        FinishedCell(cell=cell, figures={"bound": 10.0 + number})
        if number < 5
        else FinishedCell(cell=cell, figures={}, problem="no room")
        for number, cell in enumerate(grid)
    ]


def test_figures_are_averaged_over_seeds() -> None:
    """With the deviation of a sample; a failed run has no figures."""
    first, second = table(finished())
    assert (first.figures["bound"].mean, first.figures["bound"].deviation) == (11.0, 1.0)
    assert (second.figures["bound"].count, second.failed) == (2, 1)


def test_a_deviation_is_printed_where_there_is_more_than_one_run() -> None:
    """Of one run there is none to print."""
    assert table(finished())[0].spread("bound") == "11 ± 1"
    assert table(finished()[:1])[0].spread("bound") == "10"


def test_the_tables_have_a_line_for_each_run_and_for_each_figure() -> None:
    """In CSV."""
    lines = cells_csv(finished()).splitlines()
    assert lines[0] == "rules,seed,cell,problem,bound"
    assert len(lines) == 7
    assert table_csv(table(finished())).splitlines()[1] == "v1.34,bound,11.0,1.0,10.0,12.0,3,0"


def test_the_plot_is_well_formed_and_has_a_bar_for_each_place() -> None:
    """And requests nothing over a network."""
    text = plot(table(finished()), "bound", "pods")
    root = ET.fromstring(text)  # noqa: S314 - it was made here
    assert sum(element.get("class") == "bar" for element in root.iter()) == 2
    assert "href" not in text


def test_a_figure_without_a_value_is_left_out_of_means() -> None:
    """The mean names the runs that have one; a place without any has "-", the CSV nothing."""
    cells_of = list(cells([parse_axis("seed=1..2"), parse_axis("rules=v1.34,v1.36")], ()))
    waits: dict[tuple[str, str], float] = {("v1.34", "1"): 4.0}
    finished = [
        FinishedCell(
            cell=cell,
            figures={"bound": 1.0, "waited_p50": waits.get((dict(cell.place)["rules"], cell.seed))},
        )
        for cell in cells_of
    ]
    first, second = table(finished)
    assert first.cells(["waited_p50"]) == ["v1.34", "2", "4 (1 of 2)"]
    assert second.cells(["waited_p50"]) == ["v1.36", "2", "-"]
    assert [line.rpartition(",")[2] for line in cells_csv(finished).splitlines()[1:]] == [
        "4.0",
        "",
        "",
        "",
    ]
