"""Tests of generated workloads and of the bundled traces."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from replay.generate.presets import PRESETS
from replay.generate.workload import GenerateOptions, generate
from replay.hashing import KeyedRandom
from replay.results.run.cluster import ClusterObjects
from replay.results.run.device_use import DeviceTally
from replay.trace.reader import read
from replay.trace.validate import validate
from replay.trace.writer import write
from reprieve.scheduler.v1beta1 import scheduler_pb2

_BUNDLED = Path(__file__).resolve().parents[3] / "examples" / "traces"


def test_the_same_seed_gives_the_same_trace(tmp_path: Path) -> None:
    """Byte for byte."""
    options = GenerateOptions(nodes=5, pods=60, deployments=3, budgets=4, seed=9)
    for name in ("a.ktr", "b.ktr"):
        write(tmp_path / name, generate(options))
    assert (tmp_path / "a.ktr").read_bytes() == (tmp_path / "b.ktr").read_bytes()
    other = GenerateOptions(nodes=5, pods=60, deployments=3, budgets=4, seed=10)
    assert list(generate(other)) != list(generate(options))


@pytest.mark.parametrize("pods", [1, 7, 200])
def test_replicas_and_bare_pods_add_up_to_the_requested_number(pods: int) -> None:
    """Even for small numbers."""
    records = list(generate(GenerateOptions(nodes=2, pods=pods, deployments=5, budgets=3)))
    bare = sum(record.HasField("pod_create") for record in records)
    replicas = sum(
        record.create.deployment.spec.replicas
        for record in records
        if record.create.HasField("deployment")
    )
    assert bare + replicas == pods


def test_four_tiers_arrive_in_a_cluster_with_budgets_and_leaks() -> None:
    """The properties that the demonstration relies on."""
    records = list(PRESETS["four-tiers"](1))
    report = validate(records)
    assert not report.warnings
    assert report.objects["node"] == 100
    assert report.objects["priority_class"] == 4
    assert report.objects["pod_disruption_budget"] == 48
    profiles = [record.usage for record in records if record.HasField("usage")]
    assert any(len(profile.segments) > 1 for profile in profiles)


def test_openb_like_has_the_counts_of_openb() -> None:
    """As many nodes, pods and shapes."""
    counts = Counter(record.WhichOneof("record") for record in PRESETS["openb-like"](1))
    assert counts == {"header": 1, "create": 1213, "template": 160, "pod_create": 7064}


def test_accelerators_have_slices_classes_and_claims() -> None:
    """Every pod names a template that exists, and every class selects devices."""
    records = list(PRESETS["accelerators"](1))
    assert records[0].header.has_devices
    report = validate(records)
    assert not report.warnings
    assert (report.objects["node"], report.objects["resource_slice"]) == (40, 60)
    templates = {
        record.create.resource_claim_template.metadata.name
        for record in records
        if record.create.HasField("resource_claim_template")
    }
    named = {
        claim.resource_claim_template_name
        for record in records
        for claim in record.template.pod.spec.resource_claims
    }
    assert named == templates
    assert report.objects["pod"] == 600
    tally, objects = DeviceTally(), ClusterObjects()
    for record in records:
        if record.HasField("create"):
            change = objects.take(scheduler_pb2.Event(add=record.create))
            assert change is not None
            tally.take(change)
    assert {name: use.devices for name, use in tally.uses.items()} == {"gpu": 160, "gpu-part": 560}


def test_a_draw_depends_only_on_its_name() -> None:
    """Not on what was drawn before."""
    one, other = KeyedRandom(1), KeyedRandom(1)
    other.below(10, "something", 1)
    assert [one.below(1000, "x", n) for n in range(9)] == [
        other.below(1000, "x", n) for n in range(9)
    ]
    assert all(3 <= one.between(3, 5, "y", n) <= 5 for n in range(50))
    assert {one.weighted([("a", 0), ("b", 1)], n) for n in range(9)} == {"b"}


def test_the_generator_reproduces_the_bundled_trace() -> None:
    """`reprieve generate --preset four-tiers -o examples/traces/four-tiers.ktr`."""
    bundled = list(read(_BUNDLED / "four-tiers.ktr"))
    assert bundled == list(PRESETS["four-tiers"](1))


def test_the_bundled_nginx_trace_is_the_scenario_of_the_seed() -> None:
    """A pod of 5 cores is created after 8 s; the node has 6 cores, of which 4 are in use."""
    records = list(read(_BUNDLED / "nginx-preemption.jsonl"))
    report = validate(records)
    assert not report.warnings
    pods = [record for record in records if record.HasField("pod_create")]
    assert [pod.pod_create.pod.metadata.name for pod in pods] == [
        "nginx-5754944d6c-9mnxa",
        "nginx-a",
    ]
    assert [pod.time_ns - records[0].time_ns for pod in pods] == [0, 8_000_000_000]
