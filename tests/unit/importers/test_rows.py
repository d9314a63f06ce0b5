"""Tests of rows of tables, and of the objects and drafts that are made of them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from replay.errors import TraceError
from replay.importers.records import Issues, PodTemplates, RecordNumbering
from replay.importers.rows import (
    RecordDrafts,
    RecordRank,
    TableRow,
    ceil_product,
    pod_life,
    table_rows,
)
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import Marker, PodCreate, Record
from tests.unit.importers.builders import kinds


@pytest.mark.parametrize(
    ("read", "text", "problem"),
    [
        (lambda row: row.required("a"), "", "a is missing"),
        (lambda row: row.integer("a"), "1.5", "a: '1.5' is not a number"),
        (lambda row: row.count("a", 1000), "-1", "a: -1 is not a number from 0 to 1,000"),
        (lambda row: row.count("a", 1000), "1001", "a: 1001 is not a number from 0 to 1,000"),
        (lambda row: row.number("a"), "inf", "a: 'inf' is not a number"),
        (lambda row: row.integer("a"), "1e999999999", "a: '1e999999999' is not a number"),
        (lambda row: row.count("a", 9), "9" * 999, f"a: '{'9' * 999}' is not a number"),
        (lambda row: row.number("a"), "1e30", "a: '1e30' is not a number"),
        (lambda row: row.seconds_ns("a"), "1e-999999999", "a: '1e-999999999' is not a number"),
        (lambda row: row.share("a"), "-0.1", "a: -0.1 is not a share from 0 to 1000"),
        (lambda row: row.seconds_ns("a"), "1e12", "a: '1e12' is not a time in s"),
    ],
)
def test_a_field_of_another_kind_is_refused_with_its_place(
    read: Callable[[TableRow], object], text: str, problem: str
) -> None:
    """File, line and column."""
    row = TableRow(Path("a.csv"), 7, {"a": text})
    with pytest.raises(TraceError) as refusal:
        read(row)
    assert str(refusal.value) == f"a.csv, line 7: {problem}"
    assert row.line == 7


def test_an_empty_field_is_not_a_number() -> None:
    """Nor 0: what it means is the importer's to say."""
    row = TableRow(Path("a.csv"), 1, {"a": ""})
    assert (row.integer("a"), row.count("a", 5), row.number("a"), row.share("a")) == (None,) * 4
    assert (row.seconds_ns("a"), row.has("a"), row.has("b")) == (None, True, False)


def test_a_pod_lives_from_its_start_to_its_end() -> None:
    """Without an end it is censored; what was repaired is counted."""
    issues = Issues()
    assert pod_life("w", 3, 5, issues).service_duration_ns == 2
    assert list(issues) == []
    assert pod_life("w", 5, 3, issues).service_duration_ns == 0
    assert pod_life("w", 5, None, issues, no_end="was there").censored
    assert [(issue.kind, issue.message) for issue in issues] == [
        ("negative-time", "ended before it began: taken as 0 s"),
        ("censored", "was there: runs until it is deleted"),
    ]


def test_amounts_are_rounded_up() -> None:
    """So that a part of a millicore is one."""
    assert [ceil_product(Decimal(amount), 1000) for amount in ("0", "0.0001", "2")] == [0, 1, 2000]


def test_drafts_are_read_in_order() -> None:
    """Of time, then of rank, then as they were added."""
    times = [(index * 7919) % 101 for index in range(500)]
    ranks = (RecordRank.NODE, RecordRank.POD)
    with RecordDrafts() as drafts:
        for number, at_ns in enumerate(times):
            drafts.add(
                Record(time_ns=at_ns, marker=Marker(name=str(number))), rank=ranks[number % 2]
            )
        numbering = RecordNumbering()
        rows = list(drafts.records(numbering, PodTemplates(numbering)))
    expected = sorted(range(500), key=lambda number: (times[number], number % 2, number))
    assert [int(record.marker.name) for record in rows] == expected
    assert [record.sequence for record in rows] == list(range(1, 501))


def test_drafts_of_one_shape_share_a_template() -> None:
    """As pods of every importer do."""
    with RecordDrafts() as drafts:
        for name in ("a", "b", "c"):
            pod = Pod()
            pod.metadata.name = name
            drafts.add(Record(time_ns=1, pod_create=PodCreate(pod=pod)))
        numbering = RecordNumbering()
        rows = kinds(drafts.records(numbering, PodTemplates(numbering)))
    assert rows == ["pod_create", "template", "pod_create", "pod_create"]


def test_rows_of_a_file_without_names_have_as_many_fields_as_columns(tmp_path: Path) -> None:
    """Remarks and empty lines are passed over."""
    file = tmp_path / "a.csv"
    file.write_text("# remark\n\n1,x\n2,\n3\n")
    rows = table_rows(file, ("number", "text"))
    first, second = next(rows), next(rows)
    assert (first.integer("number"), first.text("text"), first.has("other")) == (1, "x", False)
    assert (second.text("text"), second.integer("text")) == ("", None)
    with pytest.raises(TraceError, match=r"a\.csv, line 5: has 1 fields; expected 2"):
        next(rows)
