"""`reprieve describe` of kinds that kubectl prints field by field."""

from __future__ import annotations

import pytest

from replay.results.kubectl.describe_object import add_object
from replay.results.kubectl.page import Page
from tests import device_objects as k8s

_CLAIM = """\
Name:         ours
Namespace:    default
Labels:       app=x
Annotations:  <none>
API Version:  resource.k8s.io/v1
Kind:         ResourceClaim
Metadata:
  Creation Timestamp:  2026-01-01T00:00:00Z
  Finalizers:
    resource.kubernetes.io/delete-protection
  UID:  uid-ours
Spec:
  Devices:
    Requests:
      Exactly:
        Admin Access:       false
        Allocation Mode:    ExactCount
        Count:              1
        Device Class Name:  gpu
      Name:                 gpu
Status:
  Allocation:
    Devices:
      Results:
        Device:   gpu-0
        Driver:   gpu.example.com
        Pool:     a
        Request:  gpu
    Node Selector:
      Node Selector Terms:
        Match Fields:
          Key:       metadata.name
          Operator:  In
          Values:
            a
"""


def test_a_claim_is_described_field_by_field() -> None:
    """As kubectl's page for a kind that it does not know: names as words, in order, no braces."""
    claim = k8s.claim(
        "ours", "a/gpu-0", requests=[k8s.request(adminAccess=False)], labels={"app": "x"}
    )
    page = Page()
    add_object(page, claim)
    assert page.text() == _CLAIM


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("resourceSliceCount", "Resource Slice Count:"),
        ("apiVersion", "API Version:"),
        ("podUID", "Pod UID:"),
        ("APIGroup", "API Group:"),
        ("gpu.example.com", "gpu.example.com:"),
        ("card-0", "card-0:"),
        ("memory-size", "Memory - Size:"),
    ],
)
def test_names_of_fields_are_words_and_keys_stay(name: str, shown: str) -> None:
    """A name with anything but letters and dashes is a key."""
    page = Page()
    add_object(page, {"metadata": {"name": "x"}, "spec": {name: {}}})
    assert page.text().splitlines()[-1].strip() == shown
