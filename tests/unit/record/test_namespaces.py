"""Recording with rights in only some namespaces: recorded objects, and missing ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path
from threading import Event

import pytest
from click.testing import CliRunner

from replay.cli.commands.traces import validate_command
from replay.cli.errors import SERVICE
from replay.errors import AllRefusedError, ApiError, RecordError
from replay.importers.kubernetes.watch import PARTIAL
from replay.importers.registry import open_trace
from replay.kube.kinds import RESOURCES
from replay.overrides.overrides import Overrides
from replay.record.api import ApiServer
from replay.record.connect import absent_namespaces, connected
from replay.record.coverage import EFFECTS
from replay.record.frames import RecordingFolder
from replay.record.kubeconfig import Access
from replay.record.recorded_trace import trace_of
from replay.record.redact import Redactor
from replay.record.session import RecordingResult
from replay.record.usage_sources import MetricsUsage
from replay.trace.files import open_plain
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.api_server import CLOSE, ApiServerDouble, Listing, Raw, Script
from tests.unit.importers.builders import kinds, make_object, make_pod
from tests.unit.record.recording import (
    access,
    cluster,
    event,
    fast,
    gone,
    issues,
    namespaced,
    readable,
    recorded,
)
from tests.unit.record.test_command import period as _period  # noqa: F401 - a fixture
from tests.unit.record.test_command import problem, record

METRICS = "/apis/metrics.k8s.io/v1beta1"
NODES = "/api/v1/nodes"
TWO = ("team-a", "team-b")
MI = 1 << 20


def pod(namespace: str, name: str, version: int, **fields: object) -> Raw:
    """Return a pod in a namespace; pods of one name in two namespaces have two uids."""
    metadata = {"namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    return make_pod(name, version, metadata=metadata, **fields)  # type: ignore[arg-type] # as the builder has it


def running(namespace: str, name: str, version: int) -> Raw:
    """Return a pod that runs on node n."""
    conditions = (("PodScheduled", "True", ""),)
    return pod(namespace, name, version, node="n", phase="Running", conditions=conditions)


def tenant(*names: str, beside: tuple[str, ...] = (), **scripts: Script) -> ApiServerDouble:
    """Return a server that lets its user read two namespaces; `scripts` are of the first one."""
    names = names or TWO
    node = make_object("Node", "n", 1, status={"allocatable": {"cpu": "4", "memory": "8Gi"}})
    served = cluster(Node=Script(lists=[Listing(items=[node], version=5)]))
    if beside != (NODES,):
        served = {}
    for number, name in enumerate(names):
        pods = Script(lists=[Listing(items=[running(name, "web", 2 + number)], version=5)])
        served |= namespaced(name, **{"Pod": pods, **(scripts if number == 0 else {})})
    paths = {
        path: item for path, item in served.items() if "/namespaces/" in path or path in beside
    }
    answers = {f"/api/v1/namespaces/{name}": make_object("Namespace", name, 1) for name in names}
    double = ApiServerDouble(paths, answers=dict(answers))
    double.readable = readable(*names, beside=beside)
    return double


def made(outcome: RecordingResult) -> list[Record]:
    """Return the trace of a recording."""
    return list(trace_of(outcome.folder))


def names_in(records: list[Record]) -> list[str]:
    """Return namespace and name of the created pods."""
    pods = [record.pod_create.pod.metadata for record in records if record.HasField("pod_create")]
    return [f"{profile.namespace}/{profile.name}" for profile in pods]


def plain(folder: Path) -> Iterator[bytes]:
    """Yield the content of all files of a folder, and their names."""
    for path in folder.iterdir():
        yield path.name.encode()
        with open_plain(path) as file:
            yield file.read()


def test_namespaced_kinds_are_recorded_in_each_namespace_and_nodes_in_the_cluster(
    tmp_path: Path,
) -> None:
    """Pods of equal names are distinct; only cluster-scoped kinds are listed in the cluster."""
    with tenant(beside=(NODES,)) as server:
        outcome = recorded(server, tmp_path / "f", options=fast(namespaces=TWO))
        assert "/api/v1/pods" not in server.requests
    records = made(outcome)
    assert names_in(records) == ["team-a/web", "team-b/web"]
    assert "create node" in kinds(records)
    assert records[0].header.options["namespaces"] == "team-a, team-b"
    assert outcome.state.statuses["pods of team-b"].listed == 1


def test_a_recording_of_namespaces_says_so_in_report_trace_and_frames(tmp_path: Path) -> None:
    """Once each, since every command that reads the frames needs it."""
    with tenant() as server:
        outcome = recorded(server, tmp_path / "f", options=fast(namespaces=TWO))
    text = "only these namespaces are recorded: team-a, team-b; pods of others are missing, so "
    assert [note for note in outcome.notes if note.startswith(text)] == [outcome.notes[0]]
    for records in (made(outcome), list(open_trace([outcome.folder.path]))):
        [issues_found] = [issue for issue in issues(records) if issue.kind == PARTIAL]
        assert issues_found.message == outcome.notes[0]


def test_validate_shows_that_a_recording_is_partial(tmp_path: Path) -> None:
    """With the namespaces that it has."""
    with tenant() as server:
        outcome = recorded(server, tmp_path / "f", options=fast(namespaces=TWO))
    result = CliRunner().invoke(validate_command, [str(outcome.folder.path), "-o", "wide"])
    assert "only these namespaces are recorded: team-a, team-b; pods" in result.output
    assert f"[{PARTIAL}]" in result.output


def test_a_cluster_scope_that_is_refused_is_noted_with_what_a_replay_lacks(tmp_path: Path) -> None:
    """One line a kind; nodes have an option that adds them."""
    with tenant() as server:
        outcome = recorded(server, tmp_path / "f", options=fast(namespaces=TWO))
    notes = [note for note in outcome.notes if " are not recorded; " in note]
    assert [note.partition(" ")[0] for note in notes] == [
        *("nodes", "namespaces", "priorityclasses", "persistentvolumes", "storageclasses"),
        *("csinodes", "csidrivers", "volumeattachments", "runtimeclasses"),
        *("resourceslices", "deviceclasses"),
    ]
    assert notes[0].startswith(f"nodes are not recorded; {EFFECTS['Node']}: /api/v1/nodes: 403")
    assert "--nodes-from nodes.yaml" in notes[0]
    assert [issue for issue in issues(made(outcome)) if issue.message == notes[0]]


def test_a_tenants_classes_are_inferred_from_the_tenants_pods(tmp_path: Path) -> None:
    """So that a what-if of their priority has an effect; the note and an issue say it."""
    spec = {"priorityClassName": "batch", "priority": 7, "preemptionPolicy": "Never"}
    waiting = pod("team-a", "job", 4, spec=spec)
    pods = Script(lists=[Listing(items=[waiting], version=5)])
    with tenant("team-a", beside=(NODES,), Pod=pods) as server:
        outcome = recorded(server, tmp_path / "f", options=fast(namespaces=("team-a",)))
    [note] = [note for note in outcome.notes if note.startswith("priorityclasses ")]
    assert "the classes that recorded pods name are inferred from them" in note
    records = made(outcome)
    [found] = [record.create.priority_class for record in records if _creates_class(record)]
    assert (found.metadata.name, found.value, found.preemption_policy) == ("batch", 7, "Never")
    assert "PriorityClass batch" in [issue.where for issue in issues(records)]
    overrides = Overrides(sets=("priorityClass.batch.value=50",))
    changed = list(overrides.records(lambda: iter(records), seed=0))
    assert [record.create.priority_class.value for record in changed if _creates_class(record)] == [
        50
    ]
    [created] = [record.pod_create.pod for record in changed if record.HasField("pod_create")]
    assert created.spec.priority == 50


def _creates_class(record: Record) -> bool:
    return record.HasField("create") and record.create.HasField("priority_class")


def test_a_kind_that_is_refused_in_two_namespaces_is_one_note(tmp_path: Path) -> None:
    """With both names."""
    with tenant() as server:
        server.readable = tuple(path for path in server.readable or () if "policy" not in path)
        outcome = recorded(server, tmp_path / "f", options=fast(namespaces=TWO))
    [note] = [note for note in outcome.notes if note.startswith("poddisruptionbudgets")]
    effect = EFFECTS["PodDisruptionBudget"]
    assert note.startswith(
        f"poddisruptionbudgets of team-a, team-b are not recorded; {effect}: "
        "/apis/policy/v1/namespaces/team-a/poddisruptionbudgets: 403 Forbidden"
    )


def test_a_namespace_that_is_refused_is_named_and_the_others_are_recorded(tmp_path: Path) -> None:
    """In one note, and not in one for each kind."""
    with tenant("team-a") as server:
        outcome = recorded(server, tmp_path / "f", options=fast(namespaces=TWO))
    notes = [note for note in outcome.notes if "team-b" in note]
    assert len(notes) == 2
    assert notes[1].startswith("namespace team-b is not recorded: every kind is refused: /api/v1/")
    assert names_in(made(outcome)) == ["team-a/web"]
    [issues_found] = [issue for issue in issues(made(outcome)) if issue.kind == PARTIAL]
    assert "recorded: team-a; pods" in issues_found.message


def test_a_namespace_that_does_not_exist_is_named_and_the_others_are_recorded(
    tmp_path: Path,
) -> None:
    """A list in such a namespace is empty, and would hide the typing error."""
    with tenant("team-a") as server:
        server.readable = (*(server.readable or ()), "/api/v1/namespaces/team-x")
        result = record(tmp_path, server.url, *["-n", "team-a", "-n", "team-x", "--for", "3s"])
        assert not [
            request
            for request in server.requests
            if request.startswith("/apis/apps/v1/namespaces/team-x")
        ]
    assert result.exit_code == 0, result.output
    note = "note      namespace team-x is not recorded: it does not exist; check --namespace\n"
    assert note in result.stderr
    assert names_in(list(open_trace([tmp_path / "t.ktr"]))) == ["team-a/web"]


def test_where_no_namespace_exists_nothing_is_recorded(tmp_path: Path) -> None:
    """One line, with the option to check."""
    with tenant("team-a") as server:
        server.readable = (*(server.readable or ()), "/api/v1/namespaces/team-x")
        refusal = problem(record(tmp_path, server.url, "-n", "team-x"))
    assert refusal.code == SERVICE
    assert "team-x: no such namespace; check --namespace" in str(refusal)
    assert [path.name for path in tmp_path.iterdir()] == ["kubeconfig"]


def test_where_no_namespace_has_answered_yet_the_user_is_not_sent_for_rights(
    tmp_path: Path,
) -> None:
    """Even if cluster-scoped kinds are refused."""

    def silent(_: BufferedIOBase, ending: Event) -> None:
        ending.wait()

    with tenant("team-a") as server:
        server.hostile = dict.fromkeys(server.scripts, silent)
        arguments = ["-n", "team-a", "--for", "1s", "--usage", "off"]
        refusal = problem(record(tmp_path, server.url, *arguments))
    assert refusal.code == SERVICE
    assert str(refusal) == (
        f"{server.url}: the recording has ended before the API server answered; record for longer"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["kubeconfig"]


def test_where_every_namespace_is_refused_nothing_is_left_although_nodes_are_listed(
    tmp_path: Path,
) -> None:
    """Nodes alone are no recording; the error names the role that is missing."""
    with tenant("team-a", beside=(NODES,)) as server:
        refusal = problem(record(tmp_path, server.url, "-n", "team-b", "--usage", "off"))
    assert refusal.code == SERVICE
    assert 'in the namespace "team-b". Give the user the Role of docs/record.md' in str(refusal)
    assert [path.name for path in tmp_path.iterdir()] == ["kubeconfig"]


def test_rights_that_end_meanwhile_keep_what_was_recorded(tmp_path: Path) -> None:
    """All kinds are refused then, and the frames are the only copy."""
    no = (403, "Forbidden", "no more")
    scripts = namespaced("team-a")
    for script in scripts.values():
        script.watches = [no]
    pods = scripts["/api/v1/namespaces/team-a/pods"]
    pods.lists = [Listing(items=[running("team-a", "web", 2)], version=5)]
    with ApiServerDouble(scripts) as server:
        server.readable = readable("team-a")
        outcome = recorded(server, tmp_path / "f", options=fast(namespaces=("team-a",)))
    assert names_in(made(outcome)) == ["team-a/web"]
    assert [note for note in outcome.notes if note.startswith("pods of team-a are only recorded")]


def test_without_namespaces_a_refusal_suggests_the_option(tmp_path: Path) -> None:
    """With the namespace of the context where it has one."""
    names = {
        "team-a": "-n team-a (kubectl's default here)",
        "": "-n NAMESPACE",
        "a b": "-n NAMESPACE",
    }
    with ApiServerDouble(cluster()) as server:
        server.readable = readable(beside=(NODES,))
        for number, (name, example) in enumerate(names.items()):
            how = Access(name="a test", server=server.url, namespace=name)
            outcome = recorded(server, tmp_path / f"{number}", how=how)
            hint = f"record only the namespaces that the user may read: {example}"
            assert outcome.hint == hint
            options = fast(resources=RESOURCES[1:])
            with pytest.raises(AllRefusedError) as refusal:
                recorded(server, tmp_path / f"again{number}", how=how, options=options)
            assert refusal.value.advice.endswith(f"docs/record.md, or {hint}")


def test_the_report_has_the_hint_and_so_has_the_error_of_a_refusal(tmp_path: Path) -> None:
    """The error is one line."""
    with ApiServerDouble(cluster()) as server:
        server.readable = readable(beside=(NODES,))
        result = record(tmp_path, server.url, "--for", "500ms", "--usage", "off")
        assert "\nhint      record only the namespaces that the user" in result.stderr
        server.readable = readable()
        refusal = str(problem(record(tmp_path, server.url, "--usage", "off")))
    assert "Give the user the ClusterRole of docs/record.md, or record only" in refusal
    assert "\n" not in refusal


def test_a_list_again_in_one_namespace_leaves_the_pods_of_the_other(tmp_path: Path) -> None:
    """Usage finds them by name."""
    again = Script(
        lists=[
            Listing(items=[running("team-a", "web", 2)], version=5),
            Listing(items=[running("team-a", "new", 8)], version=9),
        ],
        watches=[[gone(), CLOSE]],
    )
    answers = [
        {
            "metadata": {"name": name, "namespace": namespace},
            "containers": [{"usage": {"memory": f"{size}Mi"}}],
        }
        for namespace, name, size in (("team-a", "new", 1), ("team-b", "web", 2))
    ]
    with tenant(Pod=again) as server:
        for answer in answers:
            path = f"{METRICS}/namespaces/{answer['metadata']['namespace']}/pods"  # type: ignore[index] # a test's own
            server.answers[path] = {"items": [answer]}
        options = fast(namespaces=TWO)
        outcome = recorded(server, tmp_path / "f", usage="auto", samples=20, options=options)
    records = made(outcome)
    assert names_in(records) == ["team-a/web", "team-b/web", "team-a/new"]
    found = {
        record.usage.segments[0].memory_bytes for record in records if record.HasField("usage")
    }
    assert {MI, 2 * MI} <= found


def test_metrics_are_read_in_each_namespace_that_allows_it(tmp_path: Path) -> None:
    """Without a node's metrics; the namespace without them is named."""
    with tenant() as server:
        server.readable = tuple(
            path for path in server.readable or () if path != f"{METRICS}/namespaces/team-b"
        )
        item = {
            "metadata": {"name": "web", "namespace": "team-a"},
            "containers": [{"usage": {"cpu": "1m", "memory": "3Mi"}}],
        }
        server.answers[f"{METRICS}/namespaces/team-a/pods"] = {"items": [item]}
        options = fast(namespaces=TWO)
        outcome = recorded(server, tmp_path / "f", usage="auto", samples=1, options=options)
    assert outcome.usage == "metrics.k8s.io"
    note = "no kubelet evicts the pods of namespace team-b for their usage: /apis/metrics.k8s.io/"
    assert [text for text in outcome.notes if text.startswith(note)]
    found = [record.usage for record in made(outcome) if record.HasField("usage")]
    assert [profile.segments[0].memory_bytes for profile in found] == [3 * MI]


def test_a_namespace_whose_metrics_fail_later_leaves_those_of_the_others() -> None:
    """Only where no namespace answers, the sample fails."""
    paths = [f"{METRICS}/namespaces/{namespace}/pods" for namespace in TWO]
    item = {"metadata": {"name": "web", "namespace": "team-b"}, "containers": []}
    with ApiServerDouble({}, answers={paths[1]: {"items": [item]}}) as server:
        api = ApiServer(access(server), time.time_ns)
        source = MetricsUsage(api, pod_paths=paths, has_nodes=False)
        assert list(source.sample([])[0].pods) == [("team-b", "web")]
        del server.answers[paths[1]]
        with pytest.raises(ApiError, match="team-a/pods: 404"):
            source.sample([])


def test_a_prometheus_query_is_limited_to_the_namespaces(tmp_path: Path) -> None:
    """The recording has no pods of other namespaces."""
    series = [{"metric": {"namespace": "team-a", "pod": "web"}, "value": [0, str(MI)]}]
    with tenant() as server:
        server.readable = (*(server.readable or ()), "/api/v1/query")
        server.series = {
            'memory_working_set_bytes{container!="",pod!="",namespace=~"team-a|team-b"}': series
        }
        options = fast(namespaces=TWO)
        usage = f"prometheus={server.url}"
        outcome = recorded(server, tmp_path / "f", usage=usage, samples=1, options=options)
    found = [record.usage for record in made(outcome) if record.HasField("usage")]
    assert [profile.segments[0].memory_bytes for profile in found] == [MI]


def test_redaction_hides_namespaces_in_frames_names_of_files_and_notes(tmp_path: Path) -> None:
    """Also one whose name is a word of kube-scheduler's messages."""
    hidden = Redactor(b"k", ["victims", "team-b", "team-c"])
    too_old = {"kind": "Status", "code": 410, "reason": "Gone", "message": "too old in victims"}
    pods = Script(
        lists=[Listing(items=[running("victims", "web", 2)], version=5)],
        watches=[[event("ERROR", too_old), CLOSE], [CLOSE]],
    )
    options = fast(
        redactor=hidden, namespaces=("victims", "team-b", "team-c", "team-d"), absent=("team-d",)
    )
    with tenant("victims", "team-b", Pod=pods) as server:
        server.readable = tuple(path for path in server.readable or () if "batch" not in path)
        outcome = recorded(server, tmp_path / "f", options=options)
    records = made(outcome)
    for content in (*plain(outcome.folder.path), str(records).encode()):
        for name in (b"victims", b"team-b", b"team-c", b"team-d"):
            assert name not in content
    assert f"pods.{hidden.text('victims')}.watch.jsonl.zst" in {
        path.name for path in outcome.folder.path.iterdir()
    }
    assert names_in(records)[0].startswith(f"{hidden.text('victims')}/")
    assert any(hidden.text("team-c") in issue.message for issue in issues(records))
    assert any("victims" in note for note in outcome.notes)


def test_a_first_list_that_was_cut_off_in_one_namespace_is_kept(tmp_path: Path) -> None:
    """Its file has no end of the list, unlike that of the other namespace."""
    with tenant() as server:
        folder = recorded(server, tmp_path / "f", options=fast(namespaces=TWO)).folder
    file = folder.path / "pods.team-b.watch.jsonl.zst"
    with open_plain(file) as opened:
        lines = opened.read().splitlines(keepends=True)
    file.unlink()
    file.with_suffix("").write_bytes(b"".join(lines[:2]))
    records = list(open_trace([folder.path]))
    assert names_in(records) == ["team-a/web", "team-b/web"]
    assert not [issue for issue in issues(records) if issue.kind == "duplicate-source"]


def test_the_trace_is_made_again_from_the_frames_of_several_namespaces(tmp_path: Path) -> None:
    """With the same bytes, and a killed recorder's too."""
    with tenant() as server:
        options = ("-n", "team-a", "-n", "team-b", "--for", "1s", "--usage", "off")
        frames = tmp_path / "frames"
        assert record(tmp_path, server.url, *options, "--frames", str(frames)).exit_code == 0
    before = (tmp_path / "t.ktr").read_bytes()
    assert record(tmp_path, "http://127.0.0.1:1", "--from", str(frames)).exit_code == 0
    assert (tmp_path / "t.ktr").read_bytes() == before
    (frames / "recording.json").unlink()
    records = list(trace_of(RecordingFolder(frames)))
    assert names_in(records) == ["team-a/web", "team-b/web"]
    assert [issue for issue in issues(records) if issue.kind == PARTIAL]


@pytest.mark.parametrize("name", ["", "*", "a,b", "A", "-a", "a/../b", 'a"} or {x="', "a" * 64])
def test_a_text_that_is_no_namespace_is_refused_before_anything_is_asked(
    tmp_path: Path, name: str
) -> None:
    """It would become a part of a path, of a file's name and of a query."""
    result = record(tmp_path, "http://127.0.0.1:1", "--namespace", name)
    assert result.exit_code == 2
    assert "is not the name of a namespace; repeat -n for each" in result.output


def test_a_namespace_that_is_given_twice_is_recorded_once(tmp_path: Path) -> None:
    """As kubectl's users repeat options."""
    with tenant() as server:
        result = record(
            tmp_path,
            server.url,
            *["-n", "team-a", "-n", "team-a", "--for", "500ms", "--usage", "off"],
        )
        assert result.exit_code == 0, result.output
        assert server.requests["/api/v1/namespaces/team-a"] == 1


def test_a_namespace_that_may_not_be_read_is_tried() -> None:
    """Whether it exists is not known then."""
    with tenant("team-a") as server:
        api = ApiServer(access(server), time.time_ns)
        assert absent_namespaces(api, ["team-a", "team-b"]) == ()
        server.readable = (*(server.readable or ()), "/api/v1/namespaces/team-x")
        assert absent_namespaces(api, ["team-a", "team-x"]) == ("team-x",)
        with pytest.raises(RecordError, match="team-x: no such namespace"):
            connected(api, "off", lambda: True, ["team-x"])


def test_each_recorded_kind_has_an_effect() -> None:
    """Of one line."""
    assert list(EFFECTS) == [resource.kind for resource in RESOURCES]
    assert not any("\n" in effect for effect in EFFECTS.values())


def test_an_event_of_a_namespace_is_watched(tmp_path: Path) -> None:
    """From the version of its own list."""
    pods = Script(watches=[[event("ADDED", pod("team-a", "new", 6))]])
    with tenant(Pod=pods) as server:
        outcome = recorded(server, tmp_path / "f", options=fast(namespaces=TWO))
    assert names_in(made(outcome)) == ["team-b/web", "team-a/new"]
    asked = [query.get("resourceVersion") for query in pods.asked if "watch" in query]
    assert asked == ["1"]
