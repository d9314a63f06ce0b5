"""`reprieve query` and `report`: outputs, files and refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from replay.cli.commands import export, get, runs
from replay.cli.commands.runs import query_command, report_command
from replay.cli.errors import NOT_FOUND, REFUSED, ExitError
from replay.results.schema import TABLES
from tests.unit.results.small_run import small_run


@pytest.fixture
def run(tmp_path: Path) -> str:
    """Return the path of a small run."""
    return str(small_run(tmp_path / "run").path)


def _invoke(command: click.Command, *arguments: str) -> Result:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    return result


def _refused(command: click.Command, *arguments: str) -> str:
    error = CliRunner().invoke(command, arguments).exception
    assert isinstance(error, ExitError)
    assert error.code == REFUSED
    return str(error)


def test_a_query_prints_a_table(run: str) -> None:
    """NULL as kubectl prints what is absent, a mapping as labels are printed."""
    sql = "SELECT name, node_name, requests, 1.5 AS x, true AS y FROM pods ORDER BY name LIMIT 2"
    lines = _invoke(query_command, run, sql).stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["NAME", "NODE_NAME", "REQUESTS", "X", "Y"],
        ["high", "worker", "cpu=2000,pods=1", "1.5", "true"],
        ["late", "<none>", "cpu=1000,pods=1", "1.5", "true"],
    ]


def test_a_query_prints_json(run: str) -> None:
    """Whole numbers stay whole, also beyond 64 bits; no row is an empty list."""
    sql = "SELECT sum(at_ns) * 1000000 AS total, avg(1.5::DECIMAL(3,1)) AS mean FROM decisions"
    (row,) = json.loads(_invoke(query_command, run, sql, "-o", "json").stdout)
    assert row["total"] > 2**63
    assert row["mean"] == 1.5
    nothing = _invoke(query_command, run, "SELECT 1 AS x LIMIT 0", "-o", "json").stdout
    assert json.loads(nothing) == []


def test_a_query_prints_csv(run: str) -> None:
    """With a header; NULL is empty, and a mapping is JSON."""
    sql = "SELECT name, node_name, requests FROM pods WHERE name = 'late'"
    text = _invoke(query_command, run, sql, "-o", "csv").stdout
    header, row = csv.reader(text.splitlines())
    assert header == ["name", "node_name", "requests"]
    assert row[:2] == ["late", ""]
    assert json.loads(row[2]) == {"cpu": 1000, "pods": 1}


def test_tables_are_listed_with_the_meaning_of_their_columns(run: str) -> None:
    """Each of them, without making any."""
    text = _invoke(query_command, run, "--tables").stdout
    for table in TABLES.values():
        assert f"{table.name}: a row is {table.row}" in text
        for column in table.columns:
            assert column.meaning in text
    assert not list(Path(run).glob("*.parquet"))


def test_a_query_without_a_question_says_what_to_do(run: str) -> None:
    """It names --tables."""
    result = CliRunner().invoke(query_command, [run])
    assert result.exit_code == REFUSED
    assert "--tables" in result.output


@pytest.mark.parametrize("command", [query_command, report_command, export.command])
def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path, command: click.Command) -> None:
    """And nothing is written into it."""
    more = {"query": ["SELECT 1"], "export": ["-o", str(tmp_path / "x" / "o.json")]}
    (tmp_path / "x").mkdir()
    text = _refused(command, str(tmp_path / "x"), *more.get(command.name or "", []))
    assert "is not a run directory" in text
    assert list((tmp_path / "x").iterdir()) == []


def test_a_report_is_one_file(run: str, tmp_path: Path) -> None:
    """In the run, or where it is requested."""
    _invoke(report_command, run)
    text = (Path(run) / "report.html").read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>")
    _invoke(report_command, run, "-o", str(tmp_path / "r.html"))
    assert (tmp_path / "r.html").read_text("utf-8") == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "run"]


def test_a_report_that_cannot_be_written_is_refused(run: str, tmp_path: Path) -> None:
    """With the path."""
    path = str(tmp_path / "missing" / "r.html")
    assert path in _refused(report_command, run, "-o", path)


def test_a_moment_after_the_runs_end_is_refused(run: str) -> None:
    """By get and by explain, which name the end."""
    for command, arguments in ((get.command, ("pods", run)), (runs.explain_command, ("high", run))):
        output = _refused(command, *arguments, "--at", "1h")
        assert output == "the run ends at 20s (2019-10-24T08:00:20Z); 1h is after its end"


@pytest.mark.parametrize("at", ["9h", "2019-10-24T17:00:00Z"])
def test_every_moment_of_a_run_is_a_duration_or_a_time_within_it(run: str, at: str) -> None:
    """Of get, describe and explain; one after the end is refused by the same sentence."""
    for command, arguments in (
        (get.command, ("po", run)),
        (get.describe_command, ("po/high", run)),
        (runs.explain_command, ("high", run)),
    ):
        output = _refused(command, *arguments, "--at", at)
        assert output == f"the run ends at 20s (2019-10-24T08:00:20Z); {at} is after its end"


def test_explain_refuses_a_moment_before_the_run(run: str) -> None:
    """A time of the run's clock, as get does."""
    output = _refused(runs.explain_command, "high", run, "--at", "2019-10-24T07:59:59Z")
    assert output == "the run begins at 2019-10-24T08:00:00Z; 2019-10-24T07:59:59Z is before it"


def test_a_moment_of_get_and_describe_may_be_a_time(run: str) -> None:
    """Of the run's clock, or a duration from its beginning."""
    for command, arguments in (
        (get.command, ("po", run)),
        (get.describe_command, ("po/high", run)),
    ):
        time, offset = (
            _invoke(command, *arguments, "--at", moment).stdout
            for moment in ("2019-10-24T08:00:09Z", "9s")
        )
        assert time == offset != ""
        assert "2019-10-24T08:00:20Z" in _refused(command, *arguments, "--at", "9h")


def test_an_output_that_get_does_not_have_is_refused(run: str) -> None:
    """As is a template that cannot be read, with the place."""
    for output, problem in (
        ("xml", "'xml' is not one of table,"),
        ("jsonpath={.a", "at character"),
    ):
        result = CliRunner().invoke(get.command, ["po", run, "-o", output])
        assert result.exit_code == REFUSED
        assert problem in result.output


_NOTHING = "No resources found"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("po", "-l", "a=b", "--no-headers"), _NOTHING),
        (("po", "-n", "other"), f"{_NOTHING} in other namespace."),
        (("no", "-l", "a=b", "-n", "other"), _NOTHING),
        (("po", "-n", "other", "-o", "name"), f"{_NOTHING} in other namespace."),
        (("po", "-n", "other", "-o", "custom-columns=N:.metadata.name"), f"{_NOTHING} in other"),
    ],
)
def test_no_resources_found_is_on_standard_error(
    run: str, arguments: tuple[str, ...], said: str
) -> None:
    """As kubectl words it, on standard error, and the command succeeds."""
    type_, *rest = arguments
    result = _invoke(get.command, type_, run, *rest)
    assert (result.stdout, result.stderr[: len(said)]) == ("", said)
    if "-o" not in rest and "--no-headers" not in rest:
        described = CliRunner().invoke(get.describe_command, [type_, run, *rest])
        assert (described.exit_code, described.stderr) == (0, f"{said}\n")


@pytest.mark.parametrize("command", [get.command, get.describe_command])
def test_a_name_that_does_not_exist_is_exit_code_1(run: str, command: click.Command) -> None:
    """With a sentence for each, as kubectl has it; what exists is printed before."""
    result = CliRunner().invoke(command, ["po", run, "high", "hihg", "nosuch"])
    error = result.exception
    assert isinstance(error, ExitError)
    assert error.code == NOT_FOUND == 1
    where = f"not found in {run} at 2019-10-24T08:00:20Z"
    assert str(error).split("\n") == [
        f'pods "hihg" {where}; did you mean high?',
        f'pods "nosuch" {where}; --at shows other moments than the end',
    ]
    assert "high" in result.stdout


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (get.command, ("po", "high", "-l", "a=b")),
        (get.command, ("po/high", "--field-selector", "status.phase=Running")),
        (get.describe_command, ("po", "high", "-l", "a=b")),
    ],
)
def test_names_together_with_a_selector_are_refused(
    run: str, command: click.Command, arguments: tuple[str, ...]
) -> None:
    """As kubectl refuses them."""
    type_, *rest = arguments
    result = CliRunner().invoke(command, [type_, run, *rest])
    assert (result.exit_code, "not both" in result.stderr) == (2, True)


@pytest.mark.parametrize("path", ["}{", "{.metadata.name", "", ".", "{}"])
def test_what_is_not_a_path_is_refused(run: str, path: str) -> None:
    """With an example."""
    result = CliRunner().invoke(get.command, ["po", run, "--sort-by", path])
    assert (result.exit_code, "is not a path" in result.stderr) == (2, True)


def test_columns_of_the_users_own(run: str) -> None:
    """Headers and paths; what an object does not have is <none>."""
    columns = "custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,C:{.spec.containers[*].name}"
    rows = _invoke(get.command, "po", run, "-o", columns).stdout.splitlines()
    assert [row.split() for row in rows] == [
        ["NAME", "NODE", "C"],
        ["high", "worker", "c"],
        ["late", "<none>", "c"],
    ]
    result = CliRunner().invoke(get.command, ["po", run, "-o", "custom-columns=NAME"])
    assert (result.exit_code, "has no HEADER:PATH" in result.output) == (REFUSED, True)


def test_objects_are_sorted_by_a_field(run: str) -> None:
    """In every output; a field that no object has is refused."""
    for output in ("name", "jsonpath={.items[*].metadata.name}"):
        text = _invoke(get.command, "po", run, "--sort-by", ".spec.priority", "-o", output).stdout
        assert text.split()[-1].removeprefix("pod/") == "high"
    assert "no object has the field .spec.prio" in _refused(
        get.command, "po", run, "--sort-by", "{.spec.prio}"
    )


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("spec.nodeName=worker", ["high"]),
        ("spec.nodeName!=worker", ["late"]),
        ("spec.nodeName=", ["late"]),
        ("status.phase==Failed,metadata.name=high", ["high"]),
    ],
)
def test_objects_are_selected_by_their_fields(run: str, selector: str, names: list[str]) -> None:
    """An absent field is the empty text."""
    arguments = ("po", run, "--field-selector", selector, "-o", "name")
    shown = _invoke(get.command, *arguments).stdout
    assert shown.split() == [f"pod/{name}" for name in names]


def test_labels_become_columns_on_request(run: str) -> None:
    """One column for each, then one with all, after the others."""
    arguments = ("po", run, "-L", "app,example.com/tier", "-L", "x", "--show-labels")
    header, *rows = _invoke(get.command, *arguments).stdout.splitlines()
    assert header.split()[-4:] == ["APP", "TIER", "X", "LABELS"]
    assert all(row.split()[-4:] == ["<none>"] * 4 for row in rows)


def test_get_prints_for_scripts(run: str) -> None:
    """Selected by labels, without headers, as names or by a template."""
    assert _invoke(get.command, "po/high", run, "-o", "name").stdout == "pod/high\n"
    shown = _invoke(get.command, "po", run, "high", "-o", "jsonpath={.spec.priority}")
    assert shown.stdout == "9"
