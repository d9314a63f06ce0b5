"""Devices that get NoExecute taints: whose pods are deleted, and when."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from replay.backends.processes import EmbeddedServices
from replay.overrides.overrides import Overrides
from tests import device_objects as k8s
from tests.e2e.replays import run, trace

pytestmark = pytest.mark.e2e
REASON = "DeletionByDeviceTaintManager"
TAINT = "resourceslice.a-slice.devices.gpu-0.taints.sick"


def deleted_at_s(
    services: EmbeddedServices, folder: Path, *objects: Mapping[str, Any], sets: tuple[str, ...]
) -> dict[str, int]:
    """Replay objects for an hour with taints; return when pods were deleted for them, s."""
    path = k8s.written(folder / "cluster.json", k8s.node("a"), k8s.device_class(), *objects)
    records = Overrides(sets=sets).records(lambda: iter(trace([path])), 0)
    finished = run(services, records, folder / "run", rules="v1.36")
    rounds = list(finished.run.rounds())
    return {
        event.patch.pod.name: (event.time_ns - rounds[0].time_ns) // 10**9
        for round_ in rounds
        for event in round_.events
        if event.patch.HasField("deletion_time_ns") and REASON in str(event.patch.status)
    }


def running(name: str, device: str, *tolerations: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a pod that runs with a device, and its claim."""
    claim = k8s.claim(f"{name}-claim", device, reserved_for=[name])
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    result["tolerations"] = list(tolerations)
    return [claim, k8s.pod(name, claim=f"{name}-claim", on="a", service_s=3600)]


def tolerates(seconds: int | None = None, **more: Any) -> dict[str, Any]:
    """Return a toleration of all NoExecute taints, for ever or for some seconds."""
    made = {"operator": "Exists", "effect": "NoExecute", **more}
    return made if seconds is None else {**made, "tolerationSeconds": seconds}


def test_a_taint_deletes_the_pods_of_its_device_only(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """At once; a pod with the other device, and one that shares no claim, run on."""
    deleted = deleted_at_s(
        here,
        tmp_path,
        *(k8s.gpus("a", 2), *running("p", "a/gpu-0"), *running("q", "a/gpu-1")),
        sets=(f"{TAINT}=NoExecute,at=10s",),
    )
    assert deleted == {"p": 10}


@pytest.mark.parametrize(
    ("tolerations", "at_s"),
    [
        ((), 10),
        ((tolerates(),), None),
        ((tolerates(30),), 40),
        ((tolerates(30), tolerates(20)), 30),
        ((tolerates(30), tolerates()), None),
        ((tolerates(key="other"),), 10),
        ((tolerates(key="sick", operator="Equal", value="very"),), None),
        ((tolerates(-5),), 10),
        (({"operator": "Exists"},), 10),
    ],
)
def test_tolerations_of_the_allocation_decide(
    here: EmbeddedServices, tmp_path: Path, tolerations: tuple[Any, ...], at_s: int | None
) -> None:
    """The shortest counts, from the taint on; one without the effect does not count."""
    deleted = deleted_at_s(
        here,
        tmp_path,
        *(k8s.gpus("a", 1), *running("p", "a/gpu-0", *tolerations)),
        sets=(f"{TAINT}=very:NoExecute,at=10s",),
    )
    assert deleted == ({} if at_s is None else {"p": at_s})


def test_a_taint_that_goes_in_time_deletes_nothing(here: EmbeddedServices, tmp_path: Path) -> None:
    """It is NoSchedule from 30 s on; the toleration would have ended at 40 s."""
    deleted = deleted_at_s(
        here,
        tmp_path,
        *(k8s.gpus("a", 1), *running("p", "a/gpu-0", tolerates(30))),
        sets=(f"{TAINT}=NoExecute,at=10s", f"{TAINT}=NoSchedule,at=30s"),
    )
    assert deleted == {}


def test_a_pod_that_comes_later_has_no_time_of_its_own(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """It gets the device at 20 s, tolerates its taint of 10 s for 30 s, and is deleted at 40 s."""
    request = k8s.request(tolerations=[tolerates(30)])
    last = k8s.pod("p", template="one", created="2026-01-01T00:00:20Z", service_s=3600)
    deleted = deleted_at_s(
        here,
        tmp_path,
        *(k8s.gpus("a", 1), k8s.template("one", request), k8s.pod("q"), last),
        sets=(f"{TAINT}=NoExecute,at=10s",),
    )
    assert deleted == {"p": 40}
