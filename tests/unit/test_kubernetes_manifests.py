"""deploy/kubernetes: what kubectl renders fits together, and names what the services are."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.eviction.servicer import FULL_NAME as EVICTION
from services.queue.servicer import FULL_NAME as QUEUE
from services.scheduler.__main__ import FULL_NAME as SCHEDULER

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
NAMES = {"queue": QUEUE, "scheduler": SCHEDULER, "eviction": EVICTION}
Object = dict[str, Any]


@pytest.fixture(scope="module")
def rendered() -> list[Object]:
    """Return the objects of both kustomizations."""
    return [*render("base"), *render("monitoring")]


def render(name: str) -> list[Object]:
    """Return the objects of a kustomization."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl: it is in Debian's kubernetes-client")
    done = subprocess.run(
        [kubectl, "kustomize", str(FOLDER / name)], check=True, capture_output=True, text=True
    )
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def of_kind(objects: list[Object], kind: str) -> dict[str, Object]:
    """Return the objects of a kind by name."""
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def pods(objects: list[Object]) -> dict[str, Object]:
    """Return the pod templates by service."""
    found = of_kind(objects, "Deployment")
    return {name: each["spec"]["template"] for name, each in found.items()}


def selects(selector: Object, labels: dict[str, str]) -> bool:
    """Return whether a selector's matchLabels are among labels; an empty one selects all."""
    wanted = selector.get("matchLabels", selector)
    return all(labels.get(key) == value for key, value in wanted.items())


def test_everything_is_in_one_namespace_that_admits_restricted_pods_only(
    rendered: list[Object],
) -> None:
    """The namespace itself is made, too."""
    (namespace,) = of_kind(rendered, "Namespace")
    assert {each["metadata"]["namespace"] for each in rendered if each["kind"] != "Namespace"} == {
        namespace
    }
    labels = of_kind(rendered, "Namespace")[namespace]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("service", sorted(NAMES))
def test_a_pod_meets_the_restricted_standard(rendered: list[Object], service: str) -> None:
    """And has memory limits, no token and a read-only file system."""
    spec = pods(rendered)[service]["spec"]
    (container,) = spec["containers"]
    own = container["securityContext"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
    assert spec["automountServiceAccountToken"] is False
    assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("service", sorted(NAMES))
def test_probes_ask_the_service_at_the_port_where_it_listens(
    rendered: list[Object], service: str
) -> None:
    """Readiness asks for the service itself: a scheduler whose queue is away is not ready."""
    (container,) = pods(rendered)[service]["spec"]["containers"]
    listen = container["args"][container["args"].index("--listen") + 1]
    port = int(listen.rpartition(":")[2])
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    probes = {
        name: container[f"{name}Probe"]["grpc"] for name in ("startup", "readiness", "liveness")
    }
    assert ports["grpc"] == port == probes["startup"]["port"] == probes["liveness"]["port"]
    assert probes["readiness"] == {"port": port, "service": NAMES[service]}
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert environment["REPRIEVE_METRICS"] == f"0.0.0.0:{ports['metrics']}"
    if service == "scheduler":
        assert environment["REPRIEVE_QUEUE"] == "queue:50051"


@pytest.mark.parametrize("kind", ["Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"])
def test_selectors_select_the_pods_of_their_service(rendered: list[Object], kind: str) -> None:
    """And no other's; but two policies are for all of them."""
    labels = {name: each["metadata"]["labels"] for name, each in pods(rendered).items()}
    for name, each in of_kind(rendered, kind).items():
        spec = each["spec"]
        selector = spec["podSelector"] if kind == "NetworkPolicy" else spec["selector"]
        selected = {service for service in labels if selects(selector, labels[service])}
        assert selected == ({name} if name in NAMES else set(NAMES)), (kind, name)
    assert set(NAMES) <= set(of_kind(rendered, kind))


def test_a_policy_opens_ports_that_pods_have(rendered: list[Object]) -> None:
    """By name; the scheduler reaches the queue, and strangers nothing."""
    named = {each["name"] for pod in pods(rendered).values() for each in ports_of(pod)}
    for policy in of_kind(rendered, "NetworkPolicy").values():
        for rule in policy["spec"].get("ingress", ()):
            assert rule["from"], policy
            assert {each["port"] for each in rule["ports"]} <= named
    deny = of_kind(rendered, "NetworkPolicy")["default-deny"]["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def ports_of(pod: Object) -> list[Object]:
    """Return the ports of a pod template's container."""
    (container,) = pod["spec"]["containers"]
    ports: list[Object] = container["ports"]
    return ports


def test_a_monitor_selects_the_services_by_a_port_that_they_have(rendered: list[Object]) -> None:
    """All three."""
    services = of_kind(rendered, "Service").values()
    (monitor,) = of_kind(rendered, "ServiceMonitor").values()
    selector = monitor["spec"]["selector"]
    assert all(selects(selector, each["metadata"]["labels"]) for each in services)
    (endpoint,) = monitor["spec"]["endpoints"]
    for each in services:
        assert endpoint["port"] in {port["name"] for port in each["spec"]["ports"]}
