"""`reprieve describe`: pods and nodes, as kubectl's describe prints them."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.errors import RunError
from replay.results.kubectl.describe import describe
from replay.results.run.directory import RunDirectory
from services.kube.time import SECOND_NS
from tests.unit.results.messages import START_NS
from tests.unit.results.small_run import small_run

_LOW = """\
Name:           low
Namespace:      default
Priority:       0
Node:           worker
Labels:         <none>
Annotations:    <none>
Status:         Running
IP:
Controlled By:  ReplicaSet/
Containers:
  c:
    Image:
    Port:           <none>
    Host Port:      <none>
    State:          Running
    Ready:          True
    Restart Count:  0
    Requests:
      cpu:       1500m
Node-Selectors:  <none>
Tolerations:     <none>
Events:          <none>
"""
GONE = 'nodes "gone" not found'
_EVENTS_OF_HIGH = f"""\
Events:
  Type     Reason            Age  From               Message
  ----     ------            ---  ----               -------
  Warning  FailedScheduling  12s  default-scheduler  0/1 nodes are available: 1 Insufficient cpu.
  Warning  FailedScheduling  10s  default-scheduler  running Bind plugin "DefaultBinder": {GONE}
  Normal   Scheduled         9s   default-scheduler  Successfully assigned default/high to worker
  Normal   Started           9s   kubelet            Started containers
  Warning  Evicted           1s   kubelet            The node was low on resource: memory."""
_ALLOCATED = """\
Non-terminated Pods:          (1 in total)
  Namespace                   Name  CPU Requests  CPU Limits  Memory Requests  Memory Limits  Age
  ---------                   ----  ------------  ----------  ---------------  -------------  ---
  default                     low   1500m (75%)   0 (0%)      0 (0%)           0 (0%)         0s
Allocated resources:
  (Total limits may be over 100 percent, i.e., overcommitted.)
  Resource           Requests     Limits
  --------           --------     ------
  cpu                1500m (75%)  0 (0%)
  memory             0 (0%)       0 (0%)
  ephemeral-storage  0 (0%)       0 (0%)
Events:              <none>
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Return a small run."""
    return small_run(tmp_path / "run")


def _described(run: RunDirectory, resource: str, *names: str, **of: object) -> str:
    pieces: list[str] = []
    describe(run, resource, names, pieces.append, **of)  # type: ignore[arg-type] # of one test
    return "".join(pieces)


def test_a_pod_is_described_as_kubectl_does(run: RunDirectory) -> None:
    """Columns are as wide as in neighbouring lines; no line ends with spaces."""
    assert _described(run, "po", "low", offset_ns=0) == _LOW


def test_a_pods_events_are_those_until_the_moment(run: RunDirectory) -> None:
    """With their ages then; the moment may be a time."""
    assert _EVENTS_OF_HIGH in _described(run, "pod/high")
    early = _described(run, "pod/high", at_ns=START_NS + 8 * SECOND_NS)
    assert "FailedScheduling  0s" in early
    assert "Scheduled  " not in early.replace("FailedScheduling", "")


def test_a_node_is_described_with_what_its_pods_request(run: RunDirectory) -> None:
    """And with its taints, capacity and Events."""
    text = _described(run, "no", offset_ns=0)
    assert text.startswith("Name:               worker\nRoles:              <none>\n")
    assert text.endswith(_ALLOCATED)


def test_several_objects_are_two_empty_lines_apart(run: RunDirectory) -> None:
    """Without a name all of a type are described."""
    text = _described(run, "pods", offset_ns=8 * SECOND_NS)
    assert [page.splitlines()[0].split()[1] for page in text.split("\n\n\n")] == ["high", "low"]


def test_a_name_that_no_object_has_is_the_beginning_of_names(run: RunDirectory) -> None:
    """As kubectl's describe reads it; a whole name is that object only."""
    pieces: list[str] = []
    assert describe(run, "po", ("l", "high"), pieces.append, offset_ns=20 * SECOND_NS) == 2
    named = [line.split()[1] for piece in pieces for line in piece.splitlines() if "Name: " in line]
    assert sorted(name for name in named if name in ("high", "late")) == ["high", "late"]
    with pytest.raises(RunError, match=r'pods "x" not found in .*; --at shows other moments'):
        describe(run, "po", ("x",), pieces.append)


def test_what_cannot_be_described_is_refused(run: RunDirectory) -> None:
    """A name that does not exist at the moment, one of another namespace, and another type."""
    with pytest.raises(RunError, match=r'pods "high" not found in .* at 2019-10-24T08:00:00Z$'):
        _described(run, "pod", "high", offset_ns=0)
    with pytest.raises(RunError, match='pods "low" not found'):
        _described(run, "pod", "low", offset_ns=0, namespace="other")
    with pytest.raises(RunError, match=r"describe shows pods, nodes and .* use .*get deployments"):
        _described(run, "deploy", "web")
