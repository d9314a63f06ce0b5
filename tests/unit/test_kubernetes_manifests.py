"""deploy/kubernetes: what kubectl renders fits together, and names what the services are."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from replay.cli.commands.record import command as record_command
from replay.durations import duration_ns
from replay.kube.kinds import RESOURCES
from services.autoscaler.servicer import FULL_NAME as AUTOSCALER
from services.eviction.servicer import FULL_NAME as EVICTION
from services.queue.servicer import FULL_NAME as QUEUE
from services.scheduler.__main__ import FULL_NAME as SCHEDULER

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
NAMES = {"queue": QUEUE, "scheduler": SCHEDULER, "eviction": EVICTION, "autoscaler": AUTOSCALER}
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
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(objects: list[Object], kind: str) -> dict[str, Object]:
    """Return the objects of a kind by name."""
    return {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == kind}


def pods(objects: list[Object]) -> dict[str, Object]:
    """Return the pod templates by service."""
    found = of_kind(objects, "Deployment")
    return {name: item["spec"]["template"] for name, item in found.items()}


def selects(selector: Object, labels: dict[str, str]) -> bool:
    """Return whether a selector's matchLabels are among labels; an empty one selects all."""
    wanted = selector.get("matchLabels", selector)
    return all(labels.get(key) == value for key, value in wanted.items())


def test_everything_is_in_one_namespace_that_admits_restricted_pods_only(
    rendered: list[Object],
) -> None:
    """The namespace itself is made, too."""
    (namespace,) = of_kind(rendered, "Namespace")
    assert {
        document["metadata"]["namespace"]
        for document in rendered
        if document["kind"] != "Namespace"
    } == {namespace}
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
def test_probes_use_the_port_on_which_the_service_listens(
    rendered: list[Object], service: str
) -> None:
    """Readiness checks the service itself: a scheduler whose queue is away is not ready."""
    (container,) = pods(rendered)[service]["spec"]["containers"]
    listen = container["args"][container["args"].index("--listen") + 1]
    port = int(listen.rpartition(":")[2])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    probes = {
        name: container[f"{name}Probe"]["grpc"] for name in ("startup", "readiness", "liveness")
    }
    assert ports["grpc"] == port == probes["startup"]["port"] == probes["liveness"]["port"]
    assert probes["readiness"] == {"port": port, "service": NAMES[service]}
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    assert environment["REPRIEVE_METRICS"] == f"0.0.0.0:{ports['metrics']}"
    if service == "scheduler":
        assert environment["REPRIEVE_QUEUE"] == "queue:50051"


@pytest.mark.parametrize("kind", ["Deployment", "Service", "NetworkPolicy"])
def test_selectors_select_the_pods_of_their_service(rendered: list[Object], kind: str) -> None:
    """And no other's; but two policies are for all of them."""
    labels = {name: item["metadata"]["labels"] for name, item in pods(rendered).items()}
    for name, exposed in of_kind(rendered, kind).items():
        spec = exposed["spec"]
        selector = spec["podSelector"] if kind == "NetworkPolicy" else spec["selector"]
        selected = {service for service in labels if selects(selector, labels[service])}
        assert selected == ({name} if name in NAMES else set(NAMES)), (kind, name)
    assert set(NAMES) <= set(of_kind(rendered, kind))


def test_a_policy_opens_ports_that_pods_have(rendered: list[Object]) -> None:
    """By name; the scheduler reaches the queue, and strangers nothing."""
    named = {port["name"] for pod in pods(rendered).values() for port in ports_of(pod)}
    for policy in of_kind(rendered, "NetworkPolicy").values():
        for rule in policy["spec"].get("ingress", ()):
            assert rule["from"], policy
            assert {port["port"] for port in rule["ports"]} <= named
    deny = of_kind(rendered, "NetworkPolicy")["default-deny"]["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def ports_of(pod: Object) -> list[Object]:
    """Return the ports of a pod template's container."""
    (container,) = pod["spec"]["containers"]
    ports: list[Object] = container["ports"]
    return ports


def test_a_monitor_selects_the_services_by_a_port_that_they_have(rendered: list[Object]) -> None:
    """All of them."""
    services = of_kind(rendered, "Service").values()
    (monitor,) = of_kind(rendered, "ServiceMonitor").values()
    selector = monitor["spec"]["selector"]
    assert all(selects(selector, service["metadata"]["labels"]) for service in services)
    (endpoint,) = monitor["spec"]["endpoints"]
    for exposed in services:
        assert endpoint["port"] in {port["name"] for port in exposed["spec"]["ports"]}


def test_no_budget_stops_the_drain_of_a_node(rendered: list[Object]) -> None:
    """A budget for the only pod of a service lets no eviction through, and so no node's upgrade.

    A run outlives its services: it waits for them, and continues from its checkpoint.
    """
    objects = [*rendered, *render("tls"), *render("record")]
    assert of_kind(objects, "Deployment")["queue"]["spec"]["replicas"] == 1
    assert of_kind(objects, "PodDisruptionBudget") == {}


@pytest.mark.parametrize("service", sorted(NAMES))
def test_over_tls_probes_are_commands_that_show_the_services_certificate(service: str) -> None:
    """A kubelet's own probe speaks no TLS; nothing else of the pod differs."""
    plain = pods(render("base"))[service]["spec"]
    spec = pods(render("tls"))[service]["spec"]
    (container,), (plain_container,) = spec["containers"], plain["containers"]
    assert plain_container["args"] == [*container["args"], "--insecure"]
    port = {port["name"]: port["containerPort"] for port in container["ports"]}["grpc"]
    check = ["python", "-m", "services.rpc.health_check", f"127.0.0.1:{port}"]
    assert container["startupProbe"]["exec"]["command"] == check
    assert container["livenessProbe"]["exec"]["command"] == check
    readiness = container["readinessProbe"]["exec"]["command"]
    assert readiness == [*check, "--service", NAMES[service]]
    for name in ("startup", "readiness", "liveness"):
        probe = container[f"{name}Probe"]
        assert "grpc" not in probe
        assert probe["timeoutSeconds"] >= 10, "a check starts Python, on a node that may be busy"
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "access"]
    assert environment.pop("REPRIEVE_ACCESS") == f"{mount['mountPath']}/access.yaml"
    assert environment == {
        variable["name"]: variable["value"] for variable in plain_container["env"]
    }
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["access"]["secret"]["secretName"] == f"{service}-access"
    assert container["securityContext"] == plain_container["securityContext"]


def test_a_recorder_may_read_what_a_recording_needs_and_nothing_else() -> None:
    """List and watch of the recorded kinds, and the pods' metrics; no Secrets, no kubelets."""
    objects = render("record")
    (role,) = of_kind(objects, "ClusterRole").values()
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    allowed = {
        (group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    recorded = {(resource.group, resource.name) for resource in RESOURCES}
    assert allowed == recorded | {("metrics.k8s.io", "nodes"), ("metrics.k8s.io", "pods")}
    (binding,) = of_kind(objects, "ClusterRoleBinding").values()
    (account,) = of_kind(objects, "ServiceAccount").values()
    subject = {key: account["metadata"][key] for key in ("name", "namespace")}
    assert binding["subjects"] == [{"kind": "ServiceAccount", **subject}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_the_recorders_job_runs_a_command_that_exists_and_keeps_what_it_writes() -> None:
    """As its account, for less time than it has, on a claim; one at a time."""
    objects = render("record")
    (job,) = of_kind(objects, "CronJob").values()
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    inner = job["spec"]["jobTemplate"]["spec"]
    spec = inner["template"]["spec"]
    assert spec["serviceAccountName"] in of_kind(objects, "ServiceAccount")
    (container,) = spec["containers"]
    assert container["args"][:2] == ["sh", "-c"]
    words = shlex.split(container["args"][2])
    assert words[:3] == ["exec", "reprieve", "record"]
    options = {name for param in record_command.params for name in param.opts}
    assert {word for word in words if word.startswith("-")} <= options
    seconds = duration_ns(words[words.index("--for") + 1]) // 10**9
    assert seconds + spec["terminationGracePeriodSeconds"] < inner["activeDeadlineSeconds"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    (claim,) = of_kind(objects, "PersistentVolumeClaim")
    assert volumes["recordings"]["persistentVolumeClaim"]["claimName"] == claim
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "recordings"]
    assert words[words.index("-o") + 1].startswith(f"{mount['mountPath']}/")
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert spec["securityContext"]["runAsNonRoot"] is True
