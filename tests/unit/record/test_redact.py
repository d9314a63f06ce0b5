"""Redaction: hashed texts, kept texts, and selectors that still match."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from replay.kube.kinds import to_object
from replay.record.redact import Redactor
from services.rpc.errors import FieldError
from tests import device_objects as k8s
from tests.unit.importers.builders import make_object, make_pod

Raw = dict[str, Any]
REDACTOR = Redactor(b"a key")


def redacted(raw: Raw) -> Any:
    """Return an object redacted."""
    return REDACTOR.object(raw)


def test_equal_texts_become_equal_hashes_and_other_keys_give_others() -> None:
    """Within a trace, a hash stands for one text; without the key, texts cannot be guessed."""
    assert REDACTOR.text("web") == Redactor(b"a key").text("web") != REDACTOR.text("api")
    assert REDACTOR.text("web") != Redactor(b"another").text("web")
    assert "web" not in REDACTOR.text("web")


def test_a_hash_is_a_name_that_kubernetes_takes() -> None:
    """Lower case, from a letter on, short."""
    hashed = REDACTOR.text("Some/Name with everything")
    assert hashed.isalnum()
    assert hashed.islower()
    assert hashed[0].isalpha()
    assert len(hashed) < 20


@pytest.mark.parametrize("text", ["", "default", "kube-system", "true", "42", "-1", "linux"])
def test_kubernetes_own_words_and_whole_numbers_are_kept(text: str) -> None:
    """Gt and Lt compare numbers; "default" names nobody."""
    assert REDACTOR.text(text) == text


def test_the_number_of_a_stateful_sets_pod_is_kept() -> None:
    """A replay's StatefulSet knows its pods by it."""
    assert REDACTOR.text("db-12") == f"{REDACTOR.text('db')}-12"
    assert REDACTOR.text("data-db-0") == f"{REDACTOR.text('data-db')}-0"


def test_what_a_name_is_generated_from_still_begins_it_with_a_dash() -> None:
    """GenerateName appends to it."""
    assert REDACTOR.text("web-") == f"{REDACTOR.text('web')}-"


def test_selectors_still_match() -> None:
    """Labels, match labels, match expressions and a Service's selector are hashed alike."""
    pod = redacted(make_pod("p", 1, metadata={"labels": {"acme.io/team": "blue"}}))
    budget = redacted(
        make_object(
            "PodDisruptionBudget",
            "b",
            2,
            spec={
                "selector": {
                    "matchLabels": {"acme.io/team": "blue"},
                    "matchExpressions": [
                        {"key": "acme.io/team", "operator": "In", "values": ["blue", "red"]}
                    ],
                }
            },
        )
    )
    [(key, value)] = pod["metadata"]["labels"].items()
    assert "acme" not in key
    assert budget["spec"]["selector"]["matchLabels"] == {key: value}
    expression = budget["spec"]["selector"]["matchExpressions"][0]
    assert (expression["key"], expression["values"][0]) == (key, value)
    assert expression["operator"] == "In"


def test_taints_and_tolerations_nodes_and_host_names_still_match() -> None:
    """A node's name is also a label of it, and what a matchFields term requests."""
    node = redacted(
        make_object(
            "Node",
            "node-of-acme",
            1,
            metadata={"labels": {"kubernetes.io/hostname": "node-of-acme"}},
            spec={"taints": [{"key": "acme", "value": "x", "effect": "NoSchedule"}]},
        )
    )
    pod = redacted(
        make_pod(
            "p",
            2,
            node="node-of-acme",
            spec={"tolerations": [{"key": "acme", "operator": "Equal", "value": "x"}]},
        )
    )
    name = node["metadata"]["name"]
    assert node["metadata"]["labels"] == {"kubernetes.io/hostname": name}
    assert pod["spec"]["nodeName"] == name
    taint, toleration = node["spec"]["taints"][0], pod["spec"]["tolerations"][0]
    assert taint["effect"] == "NoSchedule"
    assert (taint["key"], taint["value"]) == (toleration["key"], toleration["value"])
    assert b"acme" not in orjson.dumps([node, pod])


def test_an_image_without_a_tag_is_the_nodes_latest() -> None:
    """ImageLocality adds the tag before it compares."""
    assert REDACTOR.image("registry.acme:5000/web") == REDACTOR.image(
        "registry.acme:5000/web:latest"
    )
    assert REDACTOR.image("web:1") != REDACTOR.image("web:2")
    assert REDACTOR.image("web").rpartition(":")[2] == "x"


def test_environments_commands_and_most_annotations_are_left_out() -> None:
    """No trace carries them; kubectl's last-applied annotation would hold the whole manifest."""
    raw = make_pod(
        "p",
        1,
        metadata={
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "secret",
                "reprieve/service-time": "90s",
            }
        },
        spec={
            "containers": [
                {
                    "name": "c",
                    "command": ["secret"],
                    "env": [{"name": "PASSWORD", "value": "secret"}],
                    "resources": {"requests": {"cpu": "250m", "nvidia.com/gpu": "1"}},
                }
            ]
        },
    )
    result = redacted(raw)
    assert b"secret" not in orjson.dumps(result)
    assert result["metadata"]["annotations"] == {"reprieve/service-time": "90s"}
    assert result["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "250m",
        "nvidia.com/gpu": "1",
    }


def test_the_schedulers_message_keeps_its_words_and_loses_names() -> None:
    """So that decisions can still be compared; a taint's value is hashed as the taint's is."""
    said = (
        "0/3 nodes are available: 1 node(s) had untolerated taint {acme: blue}, 2 Insufficient "
        'cpu. persistentvolumeclaim "invoices" not found. preemption: 0/3 nodes are available.'
    )
    assert REDACTOR.words(said) == said.replace("acme", REDACTOR.key("acme")).replace(
        "blue", REDACTOR.text("blue")
    ).replace("invoices", REDACTOR.text("invoices"))


def test_a_kubelets_eviction_message_still_names_the_resource() -> None:
    """The importer reads the signal from it."""
    message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 92Ki."
    assert REDACTOR.words(message) == message


def test_a_redacted_object_is_one_that_a_trace_takes() -> None:
    """Budgets' percentages, times and quantities stay what they are."""
    raw = make_object(
        "PodDisruptionBudget",
        "b",
        1,
        spec={"minAvailable": "50%", "selector": {}},
        status={"disruptedPods": {"web-abc": "2026-01-01T00:00:00Z"}, "disruptionsAllowed": 1},
    )
    result = redacted(raw)
    assert result["spec"]["minAvailable"] == "50%"
    assert list(result["status"]["disruptedPods"]) == [REDACTOR.text("web-abc")]
    assert to_object(result).HasField("pod_disruption_budget")


def test_an_object_that_cannot_be_read_is_refused() -> None:
    """Nothing of it may stay as it was."""
    with pytest.raises(FieldError):
        Redactor(b"k").object(make_pod("p", 1, spec={"priority": "high"}))


def test_a_servers_message_loses_the_recorded_namespaces_also_as_words_of_kubernetes() -> None:
    """A kubelet's message keeps its words: the importer reads the signal from it."""
    redactor = Redactor(b"k", ["memory", "victims"])
    message = 'pods in the namespace "memory" of victims/evicted: low on memory'
    hidden = redactor.server_words(message)
    assert "memory" not in hidden
    assert "victims" not in hidden
    assert hidden.endswith(f": low on {redactor.text('memory')}")
    assert redactor.words("low on memory") == "low on memory"


def test_kinds_and_groups_of_custom_resources_are_hashed() -> None:
    """An operator's owner reference names the product, and whose it is; Kubernetes' own stay."""
    owners = [
        {"apiVersion": "db.acme.io/v1", "kind": "AcmeDatabase", "name": "d", "uid": "1"},
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "2"},
        {"apiVersion": "acme/v1", "kind": "Job", "name": "k", "uid": "3"},
        {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "name": "n", "uid": "4"},
    ]
    made = redacted(make_pod("p", 1, metadata={"ownerReferences": owners}))
    kinds = [(owner["apiVersion"], owner["kind"]) for owner in made["metadata"]["ownerReferences"]]
    assert "acme" not in str(kinds).lower()
    assert kinds[0][0].endswith("/v1")
    assert kinds[1::2] == [("batch/v1", "Job"), ("storage.k8s.io/v1", "CSINode")]
    assert kinds[2][1] == "Job"


def test_words_of_any_script_are_hashed() -> None:
    """A server's message may have letters beyond ASCII."""
    for said in ("Größe von база-данных", "東京 is too old", "naïve_name_ä"):
        hidden = REDACTOR.words(said)
        assert all(part not in hidden for part in ("Größe", "база", "данных", "東京", "naïve", "ä"))


def test_devices_are_still_selected_and_identify_nobody() -> None:
    """Expressions find what they compare; names, serial numbers and drivers' parameters go."""
    device = {
        "name": "gpu-0",
        "basic": {
            "attributes": {
                "model": {"string": "A100"},
                "uuid": {"string": "GPU-18db0e85"},
                "acme.io/numa": {"int": 1},
            },
            "capacity": {"memory": {"value": "40Gi"}},
            "taints": [{"key": "acme.io/broken", "effect": "NoSchedule"}],
        },
    }
    old = k8s.slice_("node-a", [device])
    shown = redacted({**old, "apiVersion": "resource.k8s.io/v1beta1"})
    (hidden,) = shown["spec"]["devices"]
    assert hidden["attributes"]["model"] == {"string": "A100"}
    assert hidden["attributes"]["acme.io/numa"] == {"int": 1}
    assert hidden["capacity"] == {"memory": {"value": "40Gi"}}
    assert shown["spec"]["driver"] == k8s.DRIVER
    assert shown["spec"]["nodeName"] == REDACTOR.text("node-a") == shown["spec"]["pool"]["name"]
    assert to_object(shown).resource_slice.spec.devices[0].capacity["memory"].value == "40Gi"
    text = orjson.dumps(shown).decode()
    assert not any(word in text for word in ("18db0e85", "acme.io/broken", "node-a"))


def test_an_allocation_still_names_device_request_and_pod() -> None:
    """All texts that refer to each other are hashed alike; an alternative part by part."""
    secret = {"driver": k8s.DRIVER, "parameters": {"licence": "key-of-acme"}}
    claim = k8s.claim("held", "node-a/gpu-0", reserved_for=["web"], **k8s.owned_by("web"))
    claim["spec"]["devices"]["config"] = [{"requests": ["gpu"], "opaque": secret}]
    claim["status"]["allocation"]["devices"]["results"][0]["request"] = "gpu/large"
    shown = redacted(claim)
    (result,) = shown["status"]["allocation"]["devices"]["results"]
    assert result["pool"] == REDACTOR.text("node-a")
    assert result["device"] == REDACTOR.text("gpu-0")
    assert result["request"] == f"{REDACTOR.text('gpu')}/{REDACTOR.text('large')}"
    assert shown["spec"]["devices"]["requests"][0]["name"] == REDACTOR.text("gpu")
    assert shown["status"]["reservedFor"][0]["name"] == REDACTOR.text("web")
    assert shown["metadata"]["finalizers"] == [k8s.FINALIZER]
    annotation = shown["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"]
    assert annotation == REDACTOR.text("gpu")
    text = orjson.dumps(shown).decode()
    assert not any(word in text for word in ("key-of-acme", "licence", "web"))


def test_a_resource_of_a_device_class_names_the_class_by_its_hash() -> None:
    """A pod may request a class by the name that follows from it."""
    amounts = {"deviceclass.resource.kubernetes.io/fast": "1", "example.com/gpu": "1"}
    pod = make_pod("p", 1)
    pod["spec"]["containers"] = [{"name": "c", "resources": {"requests": amounts}}]
    hidden = redacted(pod)["spec"]["containers"][0]["resources"]["requests"]
    named = f"deviceclass.resource.kubernetes.io/{REDACTOR.text('fast')}"
    assert hidden == {named: "1", "example.com/gpu": "1"}
