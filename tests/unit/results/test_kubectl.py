"""STATUS and the other columns, as kubectl has them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from replay.results import durations
from replay.results.kubectl import rows
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from services.kube.time import SECOND_NS
from services.rpc.kube import json_codec
from services.rpc.kube.fields import timestamp
from tests.unit.results import messages

_CREATING = {"waiting": {"reason": "ContainerCreating"}}
_RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
_COMPLETED = {"terminated": {"exitCode": 0, "reason": "Completed"}}


def _status(status: dict[str, object], **spec: object) -> str:
    mapping = {"metadata": {"name": "p"}, "spec": spec, "status": status}
    return rows.pod_status(json_codec.parse(pod_pb2.Pod, mapping))


def _containers(*states: Mapping[str, object]) -> list[dict[str, object]]:
    return [
        {"name": str(number), "state": state, "ready": "running" in state}
        for number, state in enumerate(states)
    ]


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({}, "Pending"),
        ({"phase": "Pending"}, "Pending"),
        ({"phase": "Pending", "containerStatuses": _containers(_CREATING)}, "ContainerCreating"),
        ({"phase": "Running", "containerStatuses": _containers(_RUNNING)}, "Running"),
        ({"phase": "Succeeded", "containerStatuses": _containers(_COMPLETED)}, "Completed"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        (
            {
                "phase": "Failed",
                "reason": "Evicted",
                "containerStatuses": _containers({"terminated": {"exitCode": 137}}),
            },
            "ExitCode:137",
        ),
        (
            {"phase": "Failed", "containerStatuses": _containers({"terminated": {"signal": 9}})},
            "Signal:9",
        ),
        (
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}],
            },
            "SchedulingGated",
        ),
        ({"phase": "Running", "containerStatuses": _containers(_COMPLETED, _RUNNING)}, "NotReady"),
        (
            {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": _containers(_COMPLETED, _RUNNING),
            },
            "Running",
        ),
    ],
)
def test_the_status_is_the_most_telling_of_phase_reason_and_states(
    status: dict[str, object], shown: str
) -> None:
    """The first container that does not run has the last word."""
    assert _status(status) == shown


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ({}, "Init:1/2"),
        ({"waiting": {"reason": "PodInitializing"}}, "Init:1/2"),
        ({"waiting": {"reason": "ErrImagePull"}}, "Init:ErrImagePull"),
        ({"terminated": {"exitCode": 2}}, "Init:ExitCode:2"),
        ({"terminated": {"exitCode": 2, "reason": "Error"}}, "Init:Error"),
    ],
)
def test_a_pod_that_initializes_shows_the_first_unfinished_container(
    state: dict[str, object], shown: str
) -> None:
    """Containers that have finished well are passed over."""
    init = [{"name": "i", "state": _COMPLETED}, {"name": "j", "state": state}]
    status: dict[str, object] = {"phase": "Pending", "initContainerStatuses": init}
    assert _status(status, initContainers=[{"name": "i"}, {"name": "j"}]) == shown


def test_a_started_sidecar_does_not_hold_the_status_back() -> None:
    """It counts as a container that is ready."""
    pod = json_codec.parse(
        pod_pb2.Pod,
        {
            "metadata": {"name": "p"},
            "spec": {
                "containers": [{"name": "c"}],
                "initContainers": [{"name": "s", "restartPolicy": "Always"}],
            },
            "status": {
                "phase": "Running",
                "initContainerStatuses": [
                    {"name": "s", "started": True, "ready": True, "restartCount": 2}
                ],
                "containerStatuses": _containers(_RUNNING),
            },
        },
    )
    assert rows.pod_row(pod, 0)[1:4] == ("2/2", "Running", "2")


def test_a_pod_that_is_being_deleted_is_terminating() -> None:
    """Until it has ended; v1.16's kubectl shows Terminating to the last."""
    pod = messages.pod_message("p", node_name="n", phase="Running")
    pod.metadata.deletion_timestamp.CopyFrom(timestamp(messages.START_NS))
    assert rows.pod_status(pod) == "Terminating"
    pod.status.phase = "Succeeded"
    pod.status.container_statuses[0].state.Clear()
    pod.status.container_statuses[0].state.terminated.reason = "Completed"
    assert rows.pod_status(pod) == "Completed"
    assert rows.pod_status(pod, shows_phase=False) == "Terminating"


def test_a_row_shows_none_for_an_absent_value() -> None:
    """Addresses are not simulated."""
    pod = messages.pod_message("p")
    row = rows.pod_row(pod, messages.START_NS + 5 * SECOND_NS)
    none = rows.NONE
    assert row == ("p", "0/1", "Pending", "0", "5s", none, none, none, none)


def test_a_node_shows_readiness_roles_and_pressure() -> None:
    """STATUS of a cordoned node shows SchedulingDisabled after its readiness."""
    node = json_codec.parse(
        node_pb2.Node,
        {
            "metadata": {
                "name": "n",
                "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "data"},
            },
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [
                    {"type": "MemoryPressure", "status": "True"},
                    {"type": "Ready", "status": "True"},
                ],
                "nodeInfo": {"kubeletVersion": "v1.34.1"},
            },
        },
    )
    row = rows.node_row(node, 0)
    assert row[:5] == ("n", "Ready,SchedulingDisabled", "data,worker", "<unknown>", "v1.34.1")
    assert row[-1] == "MemoryPressure"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600 + 60, "8h"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (365 * 2 * 86400, "2y"),
        (365 * 9 * 86400, "9y"),
    ],
)
def test_ages_are_printed_as_in_kubectl(seconds: int, shown: str) -> None:
    """Two units for short durations, one for longer ones."""
    assert durations.age(seconds * 10**9) == shown


@pytest.mark.parametrize(
    ("duration_ns", "wall", "simulated"),
    [
        (0, "0 ns", "0s"),
        (12_345, "12.3 us", "0s"),
        (999_900, "1 ms", "0.001s"),
        (1_500_000_000, "1.50 s", "1.5s"),
        (90 * 10**9, "90.00 s", "1m30s"),
        (5400 * 10**9, "5,400 s", "1h30m"),
        (100 * 3600 * 10**9, "360,000 s", "4d4h"),
    ],
)
def test_durations_are_short(duration_ns: int, wall: str, simulated: str) -> None:
    """Measured durations have three digits, simulated ones two units."""
    assert durations.wall(duration_ns) == wall
    assert durations.simulated(duration_ns) == simulated
