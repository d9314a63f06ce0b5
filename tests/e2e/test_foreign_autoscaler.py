"""A replay with an autoscaler of another author, which keeps every rule of its contract."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest

from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2_grpc
from tests.conformance_mutants.small_autoscaler import SmallAutoscalerService
from tests.conformance_mutants.small_sessions import serving
from tests.e2e.commands import reprieve
from tests.e2e.node_groups import growing

pytestmark = pytest.mark.e2e


def test_another_autoscaler_takes_the_place_of_ours(tmp_path: Path) -> None:
    """Where one decision only is right it decides the same: nodes come, and one goes."""
    replay = ("replay", *growing(tmp_path), "--no-report", "--quiet", "--run")
    reprieve(tmp_path, *replay, "ours")

    def register(server: grpc.Server) -> None:
        service = SmallAutoscalerService()
        autoscaler_service_pb2_grpc.add_AutoscalerServiceServicer_to_server(service, server)

    with serving(register) as address:
        reprieve(tmp_path, *replay, "other", "--autoscaler-service", address)
    ours, other = (tmp_path / name / "decisions.jsonl" for name in ("ours", "other"))
    assert other.read_bytes() == ours.read_bytes()
    entries = [json.loads(line)["observed"] for line in ours.read_text("utf-8").splitlines()]
    grown = [entry["scaledUp"]["toSize"] for entry in entries if "scaledUp" in entry]
    removed = {entry["object"]["name"] for entry in entries if "nodeRemoval" in entry}
    assert (grown, removed) == ([2], {"idle"})
