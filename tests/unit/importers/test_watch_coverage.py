"""What a recording says of its gaps and its end, and how a trace shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.errors import TraceError
from replay.importers.kubernetes import watch
from replay.importers.kubernetes.watch_coverage import recording_coverage
from replay.importers.records import ImportOptions, Issues, Moment
from replay.importers.registry import open_trace
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.unit.importers.builders import T0_S, S, claim, gap, kinds, line, make_object, make_pod

PODS = (
    line(0, "ADDED", make_pod("a", 1)),
    claim(0, "Pod", 2, until=0, is_list=True),
    line(1, "ADDED", make_pod("b", 3)),
)
NODES = (
    line(0, "ADDED", make_object("Node", "n", 1)),
    claim(0, "Node", 2, until=0, is_list=True),
    claim(9, "Node", 90, until=9),
)


def files(folder: Path, *pods: bytes, nodes: tuple[bytes, ...] = NODES) -> list[Path]:
    """Write the watches of pods and nodes."""
    paths = []
    for name, lines in (("pods", pods), ("nodes", nodes)):
        paths.append(folder / f"{name}.watch.jsonl")
        paths[-1].write_bytes(b"\n".join(lines) + b"\n")
    return paths


def messages(records: list[Record], kind: str) -> list[str]:
    """Return the messages of the issues of one kind."""
    return [record.issue.message for record in records if record.issue.kind == kind]


def test_the_window_ends_with_what_all_files_claim_and_not_with_the_last_change(
    tmp_path: Path,
) -> None:
    """It includes a quiet end."""
    paths = files(tmp_path, *PODS, claim(9, "Pod", 80, until=9))
    records = list(open_trace(paths))
    assert records[0].header.window_end_time_ns == (T0_S + 9) * S
    assert [kind for kind in kinds(records) if kind.startswith("issue")] == []


def test_the_window_ends_where_the_first_file_does_and_the_issue_comes_before_it(
    tmp_path: Path,
) -> None:
    """So that a replay, which ends with the window, has it; later changes are in the trace."""
    late = line(8, "ADDED", make_pod("late", 7))
    end = gap(9, "Pod", 7, since=4, ended=True)
    records = list(open_trace(files(tmp_path, *PODS, claim(5, "Pod", 4, until=4), late, end)))
    assert records[0].header.window_end_time_ns == (T0_S + 4) * S
    assert kinds(records)[-2:] == ["issue missing-end", "pod_create"]
    assert [record.time_ns <= (T0_S + 4) * S for record in records[-2:]] == [True, False]
    [message] = messages(records, "missing-end")
    assert message == (
        "changes may be missing of pods since 2026-01-01T00:00:04.000Z (why); the window of the "
        "trace ends at 2026-01-01T00:00:04.000Z, 5.0s before the recording does"
    )


def test_a_recorder_that_was_killed_is_complete_until_the_earliest_claim(tmp_path: Path) -> None:
    """No line says when it ended."""
    records = list(open_trace(files(tmp_path, *PODS, claim(5, "Pod", 4, until=4))))
    assert records[0].header.window_end_time_ns == (T0_S + 4) * S
    [message] = messages(records, "missing-end")
    assert message.startswith("changes may be missing of pods since 2026-01-01T00:00:04.000Z; the")


def test_gaps_have_their_times_and_their_consequence(tmp_path: Path) -> None:
    """All gaps of a resource are one issue."""
    again = (
        *(gap(6, "Pod", 3, since=2.5), line(6, "ADDED", make_pod("c", 8))),
        claim(6, "Pod", 9, until=5.9),
        *(gap(8, "Pod", 9, since=7), claim(8, "Pod", 9, until=7.9), claim(9, "Pod", 80, until=9)),
    )
    records = list(open_trace(files(tmp_path, *PODS, *again)))
    assert "watch-error" not in str(kinds(records))
    [issue] = [record.issue for record in records if record.issue.kind == "gap"]
    assert issue.count == 2
    assert issue.message.startswith(
        "pods were not watched all the time from 2026-01-01T00:00:02.500Z to "
        "2026-01-01T00:00:06.000Z, from 2026-01-01T00:00:07.000Z to 2026-01-01T00:00:08.000Z "
        "(4.5s), why: a change in that time is recorded at its end, and"
    )


def test_a_resource_that_the_server_refused_ends_no_window(tmp_path: Path) -> None:
    """No recording could have more of it."""
    refused = gap(6, "Pod", 3, since=4, refused=True)
    records = list(open_trace(files(tmp_path, *PODS, claim(5, "Pod", 3, until=4), refused)))
    assert records[0].header.window_end_time_ns == (T0_S + 9) * S
    assert messages(records, "gap") == [
        "pods are only recorded until 2026-01-01T00:00:04.000Z: why"
    ]


def test_changes_after_a_gap_are_marked(tmp_path: Path) -> None:
    """By resourceVersion, in whichever file they are."""
    nodes = (*NODES[:2], *(line(2, "MODIFIED", make_object("Node", "n", at)) for at in (4, 8, 20)))
    pods = (*PODS, gap(6, "Pod", 3, since=2), claim(6, "Pod", 10, until=6))
    paths = files(tmp_path, *pods, nodes=(*nodes, claim(6, "Node", 30, until=6)))
    changes = watch.open_recording(paths).changes(Issues())
    unknown = [
        change.unknown for change in changes if change.raw["kind"] == "Node" and not change.initial
    ]
    assert unknown == ["pods", "pods", ""]


@pytest.mark.parametrize("broken", [b"\x00", b'{"event": {"type": "RECORDER", "object": 5}}', b"["])
def test_damage_is_reported_by_the_reader_of_the_changes(tmp_path: Path, broken: bytes) -> None:
    """The claims before it count."""
    [pods, _] = files(tmp_path, *PODS, broken)
    assert [resource.complete_until_ns for resource in recording_coverage([pods]).resources] == [
        T0_S * S
    ]


def test_a_moment_to_follow_until_is_within_the_window(tmp_path: Path) -> None:
    """After it, the state is not known."""
    late = line(8, "ADDED", make_pod("late", 7))
    paths = files(tmp_path, *PODS, claim(5, "Pod", 4, until=4), late)
    options = ImportOptions(follow_until=Moment(text="6s", since_start_ns=6 * S))
    with pytest.raises(TraceError, match="the recording ends after 4"):
        list(open_trace(paths, options=options))


def test_a_version_of_thousands_of_digits_is_no_number(tmp_path: Path) -> None:
    """Python refuses to read one; here it is a version that cannot be compared."""
    raw = make_pod("endless", 9)
    raw["metadata"]["resourceVersion"] = "9" * 5000
    end = claim(9, "Pod", 80, until=9).replace(b'"80"', b'"%s"' % (b"8" * 5000))
    records = list(open_trace(files(tmp_path, *PODS, line(2, "ADDED", raw), end)))
    assert kinds(records).count("pod_create") == 3
