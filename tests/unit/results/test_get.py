"""`reprieve get`: lists at a moment, watches, and the seed's own output."""

from __future__ import annotations

import itertools
from pathlib import Path

import orjson
import pytest
import yaml

from replay.errors import RunError
from replay.overrides.selector import parse_selector
from replay.results.kubectl.fields import FieldSelector, sorted_by
from replay.results.kubectl.get import GetQuery, get
from replay.results.kubectl.jsonpath import Field
from replay.results.kubectl.resources import NotFoundError
from replay.results.run.directory import RunDirectory
from replay.results.run.manifest import Manifest
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from tests.builders import make_node
from tests.unit.results import messages

_NODE = "test-worker"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Return a run in which high preempts low on the only node, as the seed documents tell it."""
    directory = RunDirectory.create(tmp_path / "run")
    directory.write_manifest(
        Manifest(version="0", seed=0, rules="v1.34", traces=(), kubernetes_version="v1.16.2")
    )
    log = directory.round_log()
    for round_ in _rounds():
        log.write(round_)
    log.close()
    directory.write_summary({"namespaces": ["default"]})
    return directory


def _rounds() -> list[scheduler_pb2.Round]:
    node = make_node(_NODE).message()
    low = messages.pod_message("low", node_name=_NODE, phase="Running", created_s=-37)
    ended = _container_status("Succeeded", "terminated", "Completed")
    nominated = pod_pb2.PodStatus(phase="Pending", nominated_node_name=_NODE)
    sent = messages.round_of
    return [
        sent(messages.added(node), messages.added(low)),
        sent(messages.added(messages.pod_message("high", created_s=8), 8), at_s=8),
        sent(
            messages.patched("high", 8, status=nominated),
            messages.patched("low", 8, deletion_s=38),
            at_s=8,
            number=1,
        ),
        sent(messages.added(messages.pod_message("replacement", created_s=8), 8), at_s=8, number=2),
        sent(messages.patched("low", 10, status=ended), messages.deleted("low", 10), at_s=10),
        sent(messages.patched("high", 10, status=nominated, node_name=_NODE), at_s=10, number=1),
        sent(
            messages.patched(
                "high", 10, status=_container_status("Pending", "waiting", "ContainerCreating")
            ),
            at_s=10,
            number=2,
        ),
        sent(messages.patched("high", 12, status=_container_status("Running", "running")), at_s=12),
    ]


def _container_status(phase: str, state: str, reason: str = "") -> pod_pb2.PodStatus:
    status = pod_pb2.PodStatus(phase=phase)
    container = status.container_statuses.add(name="c", ready=state == "running")
    getattr(container.state, state).SetInParent()
    if reason:
        getattr(container.state, state).reason = reason
    return status


def _printed(run: RunDirectory, **asked: object) -> str:
    pieces: list[str] = []
    get(run, GetQuery(**{"resource": "pods", **asked}), pieces.append)  # type: ignore[arg-type] # keywords of one test
    return "".join(pieces)


def _rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def _sequence(rows: list[list[str]], name: str) -> list[tuple[str, str, str]]:
    """Return (STATUS, NODE, NOMINATED NODE) of a pod, equal neighbours as one."""
    seen = ((row[2], row[6], row[7]) for row in rows if row[0] == name)
    return [key for key, _ in itertools.groupby(seen)]


def test_a_watch_prints_the_documented_output(run: RunDirectory) -> None:
    """The victim terminates; the preemptor is nominated, bound, created and runs."""
    rows = _rows(_printed(run, watch=True, output="wide"))
    none = "<none>"
    assert _sequence(rows, "low") == [("Running", _NODE, none), ("Terminating", _NODE, none)]
    assert _sequence(rows, "high") == [
        ("Pending", none, none),
        ("Pending", none, _NODE),
        ("Pending", _NODE, _NODE),
        ("ContainerCreating", _NODE, none),
        ("Running", _NODE, none),
    ]
    assert _sequence(rows, "replacement") == [("Pending", none, none)]


def test_a_list_shows_the_end_of_the_run_by_default(run: RunDirectory) -> None:
    """Rows are sorted by name, and ages are of virtual time."""
    assert _rows(_printed(run)) == [
        ["NAME", "READY", "STATUS", "RESTARTS", "AGE"],
        ["high", "1/1", "Running", "0", "4s"],
        ["replacement", "0/1", "Pending", "0", "4s"],
    ]
    assert [row[0] for row in _rows(_printed(run, offset_ns=9 * 10**9))[1:]] == [
        "high",
        "low",
        "replacement",
    ]


@pytest.mark.parametrize("resource", ["pods", "nodes", "events"])
@pytest.mark.parametrize("watch", [False, True])
def test_a_moment_after_the_end_is_refused(run: RunDirectory, resource: str, watch: bool) -> None:
    """The cluster's state is unknown then; the message has the run's end."""
    with pytest.raises(RunError, match=r"ends at 12s \(2019-10-24T08:00:12Z\); 12\.001s is after"):
        _printed(run, resource=resource, offset_ns=12_001_000_000, watch=watch)
    assert _printed(run, resource="pods", offset_ns=12 * 10**9)


def test_any_moment_up_to_the_end_can_be_shown_after_the_last_change(run: RunDirectory) -> None:
    """As --until has it: nothing has changed since the last round, but pods have aged."""
    end_ns = messages.START_NS + 68 * 10**9
    run.write_manifest(run.manifest().ended("over", end_ns=end_ns))
    assert _rows(_printed(run, offset_ns=68 * 10**9))[1][4] == "60s"
    with pytest.raises(RunError, match="the run ends at 1m8s"):
        _printed(run, offset_ns=69 * 10**9)


def test_a_watch_from_a_moment_on_begins_with_the_list(run: RunDirectory) -> None:
    """Then a row comes for each change after it."""
    rows = _rows(_printed(run, offset_ns=11 * 10**9, watch=True))[1:]
    assert [(row[0], row[2]) for row in rows] == [
        ("high", "ContainerCreating"),
        ("replacement", "Pending"),
        ("high", "Running"),
    ]


def test_another_namespace_has_no_rows(run: RunDirectory) -> None:
    """And without rows there is no header."""
    assert _printed(run, namespace="other") == ""


def test_the_namespace_column_is_shown_on_request(run: RunDirectory) -> None:
    """It comes first, as kubectl's does."""
    assert _rows(_printed(run, show_namespace=True))[1][:2] == ["default", "high"]


def test_the_namespace_column_is_shown_for_several_namespaces(run: RunDirectory) -> None:
    """Unless one of them is requested."""
    run.write_summary({"namespaces": ["default", "other"]})
    assert _rows(_printed(run))[0][0] == "NAMESPACE"
    assert _rows(_printed(run, namespace="default"))[0][0] == "NAME"
    assert _rows(_printed(run, resource="nodes"))[0][0] == "NAME"


def test_nodes_are_shown_too(run: RunDirectory) -> None:
    """A node without a Ready condition is Unknown."""
    assert _rows(_printed(run, resource="nodes"))[1][:2] == [_NODE, "Unknown"]


def test_json_and_yaml_print_whole_objects(run: RunDirectory) -> None:
    """A list is one List; a watch is one object after the other."""
    whole = orjson.loads(_printed(run, output="json"))
    assert (whole["kind"], [item["kind"] for item in whole["items"]]) == ("List", ["Pod", "Pod"])
    assert yaml.safe_load(_printed(run, output="yaml")) == whole
    documents = list(yaml.safe_load_all(_printed(run, output="yaml", watch=True)))
    assert [document["metadata"]["name"] for document in documents][:2] == ["low", "high"]


def test_an_unknown_output_is_refused(run: RunDirectory) -> None:
    """A mistake in a program is not passed over."""
    with pytest.raises(ValueError, match="outputs are table"):
        _printed(run, output="xml")


@pytest.mark.parametrize("name", ["po", "pod", "pods", "POD"])
def test_every_name_of_kubectls_for_a_type_is_read(run: RunDirectory, name: str) -> None:
    """Short, singular and plural, in any case."""
    assert _printed(run, resource=name) == _printed(run)


def test_names_choose_objects(run: RunDirectory) -> None:
    """As further arguments, or as TYPE/NAME."""
    shown = _rows(_printed(run, names=("high",)))
    assert [row[0] for row in shown] == ["NAME", "high"]
    assert _rows(_printed(run, resource="pod/high")) == shown


def test_several_types_are_tables_with_the_type_before_each_name(run: RunDirectory) -> None:
    """With an empty line between them."""
    assert _printed(run, resource="po,no", offset_ns=0) == (
        "NAME      READY   STATUS    RESTARTS   AGE\n"
        "pod/low   1/1     Running   0          37s\n"
        "\n"
        "NAME               STATUS    ROLES    AGE   VERSION\n"
        "node/test-worker   Unknown   <none>   0s\n"
    )


def test_names_that_do_not_exist_are_reported_after_those_that_do(run: RunDirectory) -> None:
    """With a similar name."""
    pieces: list[str] = []
    said = r'pods "hihg" not found in .* at 2019-10-24T08:00:12Z; did you mean high\?'
    with pytest.raises(NotFoundError, match=said):
        get(run, GetQuery(resource="po", names=("replacement", "hihg")), pieces.append)
    assert "replacement" in "".join(pieces)


def test_events_have_their_type_before_the_name_that_is_not_the_first_column(
    run: RunDirectory,
) -> None:
    """With -o wide; the name is not among the other columns."""
    log = run.decision_log()
    log.write(messages.scheduled("high", _NODE, 10))
    log.close()
    event = _printed(run, resource="ev,po", output="wide").splitlines()[1]
    assert event.split()[-1].startswith("event/high.")
    assert "event/" not in _printed(run, resource="ev,po")


def test_texts_with_numbers_are_sorted_by_the_numbers(run: RunDirectory) -> None:
    """As kubectl sorts them; quantities by their amount, and objects without the field first."""
    log = run.round_log()
    for name, memory in (("web-10", "1Gi"), ("web-2", "900Mi"), ("web-3", "")):
        pod = messages.pod_message(name)
        if memory:
            pod.spec.containers[0].resources.requests["memory"] = memory
        log.write(messages.round_of(messages.added(pod)))
    log.close()
    names = _printed(run, sort_by=Field(".metadata.name"), output="name")
    assert names.split() == ["pod/web-2", "pod/web-3", "pod/web-10"]
    amounts = Field("spec.containers[0].resources.requests.memory")
    shown = _printed(run, sort_by=amounts, output="name")
    assert shown.split() == ["pod/web-3", "pod/web-2", "pod/web-10"]


@pytest.mark.parametrize(
    "ascending",
    [
        ["2026-01-01T00:00:01Z", "2026-01-01T00:00:01.25Z", "2026-01-01T00:00:01.5Z"],
        ["1" * 5000, "2" + "1" * 5000, "10" + "1" * 5000],
        ["", "a-007", "a-8"],
    ],
)
def test_times_and_long_numbers_are_sorted_by_their_values(ascending: list[str]) -> None:
    """Also with fractions of a second, with zeros in front, and beyond what int() reads."""
    items = [{"a": text} for text in reversed(ascending)]
    found, _ = sorted_by(Field(".a"), items, lambda text: text)
    assert [row["a"] for row in found] == ascending


def test_a_watch_is_not_sorted(run: RunDirectory) -> None:
    """Changes come in their order."""
    with pytest.raises(RunError, match="leave --watch or --sort-by out"):
        _printed(run, sort_by=Field(".metadata.name"), watch=True)


def test_a_watch_selects_by_fields_as_they_are_at_each_change(run: RunDirectory) -> None:
    """A pod is shown once it has the field."""
    rows = _rows(_printed(run, fields=FieldSelector.parse("status.phase=Running"), watch=True))
    assert [row[0] for row in rows[1:]][-1] == "high"
    assert all(row[2] in ("Running", "Terminating") for row in rows[1:])


def test_a_mistyped_type_is_refused_with_similar_ones(run: RunDirectory) -> None:
    """And a mixture of TYPE/NAME with names."""
    with pytest.raises(RunError, match=r"no resource type 'pdos'; did you mean pods"):
        _printed(run, resource="pdos")
    with pytest.raises(RunError, match="'high' is not TYPE/NAME; write pod/high"):
        _printed(run, resource="po/high", names=("high",))
    with pytest.raises(RunError, match=r"write either po NAME\.\.\. or TYPE/NAME"):
        _printed(run, resource="po", names=("po/high",))
    with pytest.raises(RunError, match="one type"):
        _printed(run, resource="po,no", watch=True)


def test_a_selector_chooses_objects_by_labels(run: RunDirectory) -> None:
    """As -l does."""
    assert _printed(run, selector=parse_selector("app=web")) == ""
    assert len(_rows(_printed(run, selector=parse_selector("app!=web")))) == 3


def test_headers_can_be_left_out(run: RunDirectory) -> None:
    """Then columns are as wide as their cells, but no narrower than kubectl's six characters."""
    assert _printed(run, headers=False) == (
        "high          1/1   Running   0     4s\nreplacement   0/1   Pending   0     4s\n"
    )


def test_names_and_templates_are_for_scripts(run: RunDirectory) -> None:
    """Without a header."""
    assert _printed(run, output="name") == "pod/high\npod/replacement\n"
    assert _printed(run, output="jsonpath={.items[*].metadata.name}") == "high replacement"
    assert _printed(run, names=("high",), output="jsonpath=.spec.nodeName") == _NODE


def test_one_name_is_printed_as_the_object_itself(run: RunDirectory) -> None:
    """A list of one type stays a List, even of one object."""
    assert orjson.loads(_printed(run, names=("high",), output="json"))["kind"] == "Pod"
    assert orjson.loads(_printed(run, resource="no", output="json"))["kind"] == "List"


def test_a_moment_may_be_a_time(run: RunDirectory) -> None:
    """Of the run's clock; one before its beginning is refused."""
    shown = _printed(run, at_ns=messages.START_NS + 9 * 10**9)
    assert shown == _printed(run, offset_ns=9 * 10**9)
    with pytest.raises(RunError, match="begins at 2019-10-24T08:00:00Z; 2019-10-24T07:59:59Z is"):
        _printed(run, at_ns=messages.START_NS - 10**9)


def test_nodes_are_in_no_namespace(run: RunDirectory) -> None:
    """As kubectl ignores -n for them."""
    assert _printed(run, resource="no", namespace="other") == _printed(run, resource="no")


def test_a_template_prints_no_control_characters(run: RunDirectory) -> None:
    """But those that the template itself has for lines and columns."""
    log = run.round_log()
    evil = messages.pod_message("evil")
    evil.metadata.labels["a"] = "\x1b]0;owned\x07"
    log.write(messages.round_of(messages.added(evil)))
    log.close()
    template = 'jsonpath={.items[*].metadata.labels.a}{"\\t"}{"\\n"}'
    assert _printed(run, output=template) == "\\x1b]0;owned\\x07\t\n"
