"""The state of a replay as bytes: a closed set of types, and nothing that acts."""

from __future__ import annotations

import os
import pickle
from collections import Counter, deque
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from replay.results.recorder import Recorder
from replay.results.run.directory import RunDirectory
from replay.state_codec import UnreadableStateError, dump, load
from replay.world.api.cluster import Cluster
from replay.world.timeline import ActionKind, Timeline
from reprieve.kube.v1beta1 import pod_pb2
from services.kube.pod import EMPTY


def test_values_messages_and_arrays_come_back_as_they_were() -> None:
    """One object that is referred to twice stays one."""
    pod = pod_pb2.Pod()
    pod.metadata.name = "a"
    timeline = Timeline()
    timeline.plan(7, ActionKind.START, "uid")
    column = np.arange(6, dtype=np.int64).reshape(2, 3)
    state = [timeline, pod, pod, column, Counter(a=1), deque([1])]
    found = load(dump(state, {}), {})
    assert found[1] == pod
    assert found[1] is found[2]
    assert (found[3] == column).all()
    found[3][0, 0] = 9
    assert found[0].next_ns() == 7
    assert found[4:] == state[4:]


def test_a_read_only_mapping_comes_back_read_only() -> None:
    """As the labels of an object without labels are."""
    found = load(dump([EMPTY, MappingProxyType({"a": 1})], {}), {})
    assert found == [{}, {"a": 1}]
    assert {type(each) for each in found} == {MappingProxyType}


def test_what_is_outside_is_supplied_by_the_reader() -> None:
    """Its bound methods, too."""
    former, present = Cluster(), Cluster()
    data = dump([former, former.take_events], {"cluster": former})
    cluster, method = load(data, {"cluster": present})
    assert cluster is present
    assert method.__self__ is present


@pytest.mark.parametrize("value", [Path("/"), os.system, RunDirectory(Path("/")), Recorder])
def test_an_object_of_another_type_is_not_written(value: object) -> None:
    """Such as a file, a function or a run's folder."""
    with pytest.raises(TypeError):
        dump([value], {})


def _pickled(module: str, name: str, *arguments: object) -> bytes:
    """Return the pickle of a call, as an attacker writes it."""
    packed = pickle.dumps(arguments, protocol=4)[:-1]
    return b"\x80\x04c" + f"{module}\n{name}\n".encode() + packed + b"R."


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("subprocess", "Popen"),
        ("replay.results.run.directory", "RunDirectory"),
        ("replay.results.run.directory", "RunDirectory.create_next"),
        ("replay.world.api.cluster", "Cluster.take_events"),
        ("replay.state_codec", "_class_of"),
        ("numpy", "load"),
    ],
)
def test_a_crafted_state_calls_nothing(module: str, name: str, tmp_path: Path) -> None:
    """Whatever it names that is not a class of the state."""
    target = tmp_path / "made"
    with pytest.raises(UnreadableStateError):
        load(_pickled(module, name, f"touch {target}"), {})
    assert not target.exists()


def test_a_crafted_state_reaches_no_method_of_a_class() -> None:
    """`_method` is for objects of the state only."""
    crafted = (
        b"\x80\x04creplay.state_codec\n_method\n"
        b"creplay.world.timeline\nTimeline\nX\x0c\x00\x00\x00__subclasses__"[:-2]
        + b"\x86R."
    )
    with pytest.raises(UnreadableStateError):
        load(crafted, {})


@pytest.mark.parametrize("size", [0, 1, 50, 200])
def test_a_state_that_is_cut_off_is_refused(size: int) -> None:
    """At any place."""
    timeline = Timeline()
    for number in range(20):
        timeline.plan(number, ActionKind.START, f"uid-{number}")
    with pytest.raises(UnreadableStateError):
        load(dump(timeline, {})[:size], {})
