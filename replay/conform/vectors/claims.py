"""Compares the results of device claims in scenarios: allocations, writes, claims given back.

Shares' identifiers, times of allocations, and the generated parts of names are compared for their
presence only. Where upstream's order of pools is random, any of its outcomes is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reprieve.kube.v1beta1 import meta_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.rpc.kube.json_codec import to_json

Json = Mapping[str, Any]
OBJECTS = {
    "resourceSlices": "resource_slice",
    "deviceClasses": "device_class",
    "resourceClaims": "resource_claim",
    "resourceClaimTemplates": "resource_claim_template",
}
"""The kinds of a scenario, and their fields of a KubernetesObject."""
_CREATED = "default/extended-resources"
_KEYS = frozenset({"allocations", "allocationAlternatives", "writes", "postFilter"})


def is_about_claims(scenario: Json) -> bool:
    """Return whether a scenario has objects of device claims."""
    return "resourceClaims" in scenario


def split(recorded: Json) -> tuple[dict[str, Any], Json]:
    """Return the recorded results without claims, and those about claims."""
    rest = {key: value for key, value in recorded.items() if key not in _KEYS}
    return rest, {key: recorded[key] for key in _KEYS if key in recorded}


def claims_differences(
    scenario: Json, recorded: Json, evaluation: scheduler_pb2.Evaluation
) -> list[str]:
    """Return the differences, one text for each field of the vector."""
    fitting = {node.node_name: node for node in evaluation.nodes if not node.HasField("refusal")}
    allocated = {
        claim["metadata"]["name"]
        for claim in scenario["resourceClaims"]
        if claim.get("status", {}).get("allocation")
    }
    reported = {
        _named(claim): claim["status"]["devices"]
        for claim in scenario["resourceClaims"]
        if "devices" in claim.get("status", {})
    }
    by_node = {name: _allocations(node.claims, allocated) for name, node in fitting.items()}
    allocations = {
        name: allocated_there for name, allocated_there in by_node.items() if allocated_there
    }
    wanted = dict(recorded.get("allocations", {}))
    for name, alternatives in recorded.get("allocationAlternatives", {}).items():
        answer_there = allocations.get(name)
        wanted[name] = answer_there if answer_there in alternatives else alternatives[0]
    writes = {
        name: _writes(fitting[name], reported)
        for name in recorded.get("writes", {})
        if name in fitting
    }
    answer = {
        "allocations": allocations,
        "writes": {name: written for name, written in writes.items() if written},
        "postFilter": _freed(evaluation.freed_claims, recorded.get("postFilter", {})),
    }
    expected = {
        "allocations": wanted,
        "writes": recorded.get("writes", {}),
        "postFilter": recorded.get("postFilter", {}),
    }
    return [
        f"{scenario['id']} {key}:\n  is     {answer[key]}\n  wanted {expected[key]}"
        for key in answer
        if answer[key] != expected[key]
    ]


def _allocations(changes: scheduler_pb2.ClaimChanges, allocated: set[str]) -> dict[str, Any]:
    """Return the new allocations of claims that had none, by claim."""
    by_claim = {
        _key(claim.metadata): _allocation(claim)
        for claim in changes.claims
        if claim.metadata.name not in allocated
    }
    if changes.HasField("created"):
        by_claim[_CREATED] = _allocation(changes.created)
    return by_claim


def _allocation(claim: Any) -> Json:
    plain = to_json(claim.status.allocation)
    plain.pop("allocationTimestamp", None)
    plain.setdefault("devices", {})
    return plain


def _writes(node: scheduler_pb2.NodeVerdict, reported: Json) -> dict[str, Any]:
    """Return the writes of a binding; conditions that drivers reported stay."""
    changes = node.claims
    written: dict[str, Any] = {}
    if node.claims_failure:
        point = "reserve" if node.claims_failure.startswith("running Reserve") else "preBind"
        written[point] = node.claims_failure
    claims = {_key(claim.metadata): _written(claim) for claim in changes.claims}
    for key, devices in reported.items():
        if key in claims:
            claims[key]["status"]["devices"] = devices
    if changes.HasField("created"):
        written["created"] = [_created(changes.created)]
    if changes.HasField("extended_resource_claim_status"):
        status = to_json(changes.extended_resource_claim_status)
        status["resourceClaimName"] = f"{changes.created.metadata.generate_name}0"
        written["podPatch"] = [{"status": {"extendedResourceClaimStatus": status}}]
    if claims:
        written["claims"] = claims
    return written


def _created(claim: Any) -> Json:
    """Return a claim that is made, with what stands for its generated name and UID."""
    metadata = to_json(claim.metadata)
    metadata |= {"name": f"{claim.metadata.generate_name}0", "uid": "uid-generated"}
    requests = to_json(claim.spec).get("devices", {}).get("requests")
    written = _written(claim)
    written["status"]["allocation"].setdefault("devices", {})
    return {
        "metadata": {**metadata, "finalizers": written["finalizers"]},
        "spec": {"devices": {"requests": requests}},
        "status": written["status"],
    }


def _named(claim: Json) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"


def _written(claim: Any) -> dict[str, Any]:
    plain = to_json(claim.status)
    allocation = plain.get("allocation", {})
    if "allocationTimestamp" in allocation:
        allocation["allocationTimestamp"] = "now"
    return {"finalizers": list(claim.metadata.finalizers), "status": plain}


def _freed(freed: scheduler_pb2.FreedClaims, recorded: Json) -> dict[str, Any]:
    deallocated, deleted = _keys(freed.deallocated), _keys(freed.deleted)
    if "deallocatedAnyOf" in recorded:
        any_of = recorded["deallocatedAnyOf"]
        is_one = len(deallocated) == 1 and deallocated[0] in any_of
        return {"deallocatedAnyOf": any_of if is_one else deallocated}
    answer = {"deallocated": deallocated, "deleted": deleted}
    return {key: keys for key, keys in answer.items() if keys}


def _keys(refs: Iterable[meta_pb2.ObjectReference]) -> list[str]:
    return [f"{ref.namespace}/{ref.name}" for ref in refs]


def _key(metadata: meta_pb2.ObjectMeta) -> str:
    return f"{metadata.namespace}/{metadata.name}"
