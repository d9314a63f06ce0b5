"""Kubernetes JSON becomes messages, and a wrong type is refused with its path."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from reprieve.kube.v1beta1.device_pb2 import DeviceClaimConfiguration, RawExtension
from reprieve.kube.v1beta1.meta_pb2 import IntOrString
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.kube.v1beta1.policy_pb2 import PodDisruptionBudget
from services.rpc.errors import FieldError
from services.rpc.kube.json_codec import parse, to_json, to_proto3_json

PROTOS = Path(__file__).resolve().parents[3] / "protos"


def _container(**fields: object) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c"}, fields]}}


def test_every_message_of_the_contract_can_be_written() -> None:
    """Writers are built from the descriptors."""
    kinds = 0
    for path in PROTOS.rglob("*.proto"):
        parts = path.relative_to(PROTOS).with_suffix("").parts
        module = importlib.import_module(".".join(parts) + "_pb2")
        for name in module.DESCRIPTOR.message_types_by_name:
            kind = getattr(module, name)
            is_object = kind not in {IntOrString, RawExtension}  # Bare numbers, strings, any JSON.
            assert to_json(kind()) == ({} if is_object else None)
            kinds += 1
    assert kinds > 200


def test_any_json_value_is_preserved() -> None:
    """A driver's own parameters: objects in their order, lists, numbers, null."""
    parameters = {"b": [1, 2.5, None], "a": {"kind": "X"}}
    plain = {"opaque": {"driver": "d", "parameters": parameters}}
    message = parse(DeviceClaimConfiguration, plain)
    assert json.dumps(to_json(message)) == json.dumps(plain)


def test_unknown_fields_and_nulls_are_skipped() -> None:
    """A bookmark's pod has null containers; managedFields are not carried."""
    pod = parse(
        Pod,
        {
            "apiVersion": "v1",
            "metadata": {"name": "p", "creationTimestamp": None, "managedFields": [{}]},
            "spec": {"containers": None},
        },
    )
    assert pod.metadata.name == "p"
    assert not pod.metadata.HasField("creation_timestamp")
    assert not pod.spec.containers


def test_names_that_kubernetes_capitalises_are_read() -> None:
    """HostIP, podIP and podIPs have names of their own."""
    pod = parse(Pod, {"status": {"hostIP": "1.1.1.1", "podIPs": [{"ip": "2.2.2.2"}]}})
    assert (pod.status.host_ip, pod.status.pod_ips[0].ip) == ("1.1.1.1", "2.2.2.2")


@pytest.mark.parametrize(("number", "text"), [(5, "5"), (0.5, "0.5"), (10**20, "1" + "0" * 20)])
def test_a_bare_number_is_a_quantity(number: float, text: str) -> None:
    """`cpu: 5` in YAML is a number, and only quantities take one."""
    pod = parse(Pod, _container(resources={"requests": {"cpu": number}}))
    assert pod.spec.containers[1].resources.requests["cpu"] == text


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (
            _container(ports=[{"hostPort": "x"}]),
            "spec.containers[1].ports[0].hostPort: 'x' where a whole number is wanted",
        ),
        (
            _container(ports=[{"hostPort": 2**31}]),
            "spec.containers[1].ports[0].hostPort: 2147483648 does not fit 32 bits",
        ),
        (_container(name=5), "spec.containers[1].name: 5 where a string is wanted"),
        (
            _container(resources={"requests": {"cpu": True}}),
            "spec.containers[1].resources.requests[cpu]: True where a quantity is wanted",
        ),
        (
            _container(resources={"limits": ["cpu"]}),
            "spec.containers[1].resources.limits: a list where an object is wanted",
        ),
        ({"metadata": {"labels": {"a": 1}}}, "metadata.labels[a]: 1 where a string is wanted"),
        (
            {"metadata": {"labels": {1: "a"}}},
            "metadata.labels[1]: 1 where a string as key is wanted",
        ),
        ({"spec": {"containers": [None]}}, "spec.containers[0]: null where an object is wanted"),
        ({"spec": {"containers": {}}}, "spec.containers: an object where a list is wanted"),
        ({"spec": {"hostNetwork": 1}}, "spec.hostNetwork: 1 where true or false is wanted"),
        ({"spec": {"priority": True}}, "spec.priority: True where a whole number is wanted"),
        ({"spec": {"priority": 1.5}}, "spec.priority: 1.5 where a whole number is wanted"),
        (
            {"metadata": {"creationTimestamp": "2026-13-01T00:00:00Z"}},
            "metadata.creationTimestamp: '2026-13-01T00:00:00Z' where a time such as",
        ),
        (
            {"metadata": {"creationTimestamp": 5}},
            "metadata.creationTimestamp: 5 where a time is wanted",
        ),
        (
            {"metadata": {"name": "\ud800"}},
            "Pod: has text that is not Unicode: surrogates not allowed",
        ),
        ([], "Pod: a list where an object is wanted"),
    ],
)
def test_a_wrong_type_is_refused_with_its_path(mapping: Any, message: str) -> None:
    """The path is as kubectl writes it."""
    with pytest.raises(FieldError) as refused:
        parse(Pod, mapping)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("bound", "problem"),
    [
        (True, "True where a whole number or a string is wanted"),
        (1.5, "1.5 where a whole number or a string is wanted"),
        ({"intValue": 1}, "an object where a whole number or a string is wanted"),
        (2**31, "2147483648 does not fit 32 bits"),
        (-1e30, "-1000000000000000019884624838656 does not fit 32 bits"),
    ],
)
def test_a_wrong_int_or_string_is_refused(bound: object, problem: str) -> None:
    """An IntOrString is a whole number of 32 bits or a string, and nothing else."""
    with pytest.raises(FieldError) as refused:
        parse(PodDisruptionBudget, {"spec": {"minAvailable": bound}})
    assert str(refused.value) == f"spec.minAvailable: {problem}"


def test_an_empty_selector_differs_from_an_absent_one() -> None:
    """Presence survives both ways."""
    empty = parse(PodDisruptionBudget, {"spec": {"selector": {}}})
    assert empty.spec.HasField("selector")
    assert to_json(empty) == {"spec": {"selector": {}}}
    assert not parse(PodDisruptionBudget, {"spec": {}}).spec.HasField("selector")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00.25Z", "2026-01-01T00:00:00.25Z"),
        ("0044-03-15T00:00:00Z", "0044-03-15T00:00:00Z"),
    ],
)
def test_a_time_is_written_in_utc(written: str, read: str) -> None:
    """Whole seconds have no fraction."""
    pod = parse(Pod, {"status": {"startTime": written}})
    assert to_json(pod) == {"status": {"startTime": read}}


def test_numbers_are_written_as_numbers() -> None:
    """Kubernetes has no 64-bit integers as texts, yet protobuf's own JSON is read."""
    pod = parse(Pod, {"spec": {"terminationGracePeriodSeconds": "30", "priority": 0}})
    assert to_json(pod) == {"spec": {"priority": 0, "terminationGracePeriodSeconds": 30}}


def test_an_int_or_string_survives_a_round_trip() -> None:
    """Integers stay integers; protobuf's own JSON has the name of the case."""
    spec = {"minAvailable": 2.0, "maxUnavailable": "50%"}
    budget = parse(PodDisruptionBudget, {"spec": spec})
    assert repr(to_json(budget)) == repr({"spec": {"minAvailable": 2, "maxUnavailable": "50%"}})
    named = {"minAvailable": {"intValue": 2}, "maxUnavailable": {"stringValue": "50%"}}
    assert to_proto3_json(budget) == json_format.MessageToDict(budget) == {"spec": named}
