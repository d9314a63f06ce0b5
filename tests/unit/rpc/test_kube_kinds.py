"""Objects are known by apiVersion and kind."""

from __future__ import annotations

import pytest

from replay.kube.kinds import is_carried, to_object
from reprieve.kube.v1beta1.meta_pb2 import ObjectMeta
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from services.rpc.kube.codec import API_VERSIONS, object_to_json


@pytest.mark.parametrize("kind", sorted(API_VERSIONS))
def test_every_kind_survives_a_round_trip(kind: str) -> None:
    """Every kind has a place in KubernetesObject."""
    mapping = {"apiVersion": API_VERSIONS[kind], "kind": kind, "metadata": {"name": "x"}}
    read = to_object(mapping)
    assert object_to_json(read) == mapping


def test_every_object_has_an_api_version() -> None:
    """The table and the message know the same kinds."""
    types = [field.message_type for field in KubernetesObject.DESCRIPTOR.fields]
    assert sorted(type_.name for type_ in types if type_) == sorted(API_VERSIONS)


def test_a_kind_of_another_group_is_another_kind() -> None:
    """Other projects have a Service of their own."""
    assert not is_carried({"apiVersion": "serving.knative.dev/v1", "kind": "Service"})
    assert not is_carried({"apiVersion": "v1", "kind": "Event"})


def test_an_older_version_is_read_as_the_carried_one() -> None:
    """Old recordings hold policy/v1beta1 budgets, whose empty selector matches nothing."""
    budget = {"kind": "PodDisruptionBudget", "spec": {"selector": {}}}
    old = to_object({"apiVersion": "policy/v1beta1", **budget})
    new = to_object({"apiVersion": "policy/v1", **budget})
    assert not old.pod_disruption_budget.spec.HasField("selector")
    assert new.pod_disruption_budget.spec.HasField("selector")


@pytest.mark.parametrize("mapping", [{}, {"kind": "Pod"}, {"kind": 5, "apiVersion": "v1"}])
def test_an_object_without_kind_or_version_is_not_carried(mapping: dict[str, object]) -> None:
    """Nor one whose kind is no text."""
    assert not is_carried(mapping)


def test_what_is_not_an_object_cannot_be_written() -> None:
    """An empty Object and a part of one have no kind."""
    with pytest.raises(ValueError, match="holds no object"):
        object_to_json(KubernetesObject())
    with pytest.raises(ValueError, match="not a kind"):
        object_to_json(ObjectMeta())
