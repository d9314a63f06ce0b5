"""Objects that a trace does not carry are named with what a replay lacks without them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from replay.importers.registry import open_trace
from tests.unit.importers.builders import issues

LIVING = """
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web, namespace: shop, uid: d, creationTimestamp: "2026-01-01T00:00:00Z"}
  spec:
    replicas: 4
    selector: {matchLabels: {app: web}}
    template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}
- apiVersion: apps/v1
  kind: ReplicaSet
  metadata:
    name: canary-1
    namespace: shop
    uid: rs
    creationTimestamp: "2026-01-01T00:00:00Z"
    ownerReferences:
    - {apiVersion: argoproj.io/v1alpha1, kind: Rollout, name: canary, uid: ro, controller: true}
  spec:
    replicas: 12
    selector: {matchLabels: {app: canary}}
    template: {metadata: {labels: {app: canary}}, spec: {containers: [{name: c, image: i}]}}
"""


def noted(tmp_path: Path, *texts: str) -> list[tuple[str, str]]:
    """Return the issues of a living cluster's list and manifests, as (kind, message)."""
    file = tmp_path / "m.yaml"
    file.write_text("\n---\n".join((LIVING, *map(dedent, texts))))
    return [(issue.kind, issue.message) for issue in issues(list(open_trace([file])))]


def document(api_version: str, kind: str, name: str = "web", **rest: object) -> str:
    """Return an object of namespace shop."""
    meta = {"name": name, "namespace": "shop"}
    return yaml.safe_dump({"apiVersion": api_version, "kind": kind, "metadata": meta, **rest})


TARGET = {"kind": "Deployment", "name": "web"}
TEMPLATE = {"spec": {"containers": [{"name": "c"}]}}
PODS = [{"rules": [{"resources": ["pods"]}]}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            document(
                "autoscaling/v2",
                "HorizontalPodAutoscaler",
                spec={"scaleTargetRef": TARGET, "minReplicas": 2, "maxReplicas": 10},
            ),
            (
                "HorizontalPodAutoscaler shop/web scales Deployment web between 2 and 10: "
                "replicas stay at 4 unless something else sets them"
            ),
        ),
        (
            document("keda.sh/v1alpha1", "ScaledObject", spec={"scaleTargetRef": {"name": "web"}}),
            (
                "ScaledObject shop/web scales Deployment web between 0 and 100: "
                "replicas stay at 4 unless something else sets them"
            ),
        ),
        (
            document("keda.sh/v1alpha1", "ScaledObject", spec={"scaleTargetRef": {"name": "no"}}),
            (
                "ScaledObject shop/web scales Deployment no between 0 and 100: "
                "its replicas stay as they are"
            ),
        ),
        (
            document("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", spec={"targetRef": TARGET}),
            (
                "VerticalPodAutoscaler shop/web sets the requests of Deployment web's pods: "
                "requests stay as they are"
            ),
        ),
        (
            document("karpenter.sh/v1", "NodePool", "default"),
            (
                "NodePool shop/default adds and removes nodes: the nodes stay as they are, "
                "and a pod that fits on none of them stays pending"
            ),
        ),
        (
            document(
                "argoproj.io/v1alpha1",
                "Rollout",
                "canary",
                spec={"replicas": 40, "template": TEMPLATE},
            ),
            (
                "Rollout shop/canary asks for 40 replicas: no controller of it is simulated, "
                "it stays at 12 replicas"
            ),
        ),
        (
            document(
                "argoproj.io/v1alpha1", "Rollout", spec={"replicas": 40, "template": TEMPLATE}
            ),
            (
                "Rollout shop/web asks for 40 replicas: no controller of it is simulated, "
                "no pods are made"
            ),
        ),
        (
            document("serving.knative.dev/v1", "Service", spec={"template": TEMPLATE}),
            "Service shop/web makes pods: no controller of it is simulated, no pods are made",
        ),
        (
            document(
                "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", webhooks=PODS
            ),
            (
                "MutatingWebhookConfiguration shop/web may change new pods: "
                "its webhooks are not called"
            ),
        ),
    ],
)
def test_what_would_change_the_cluster_is_named_with_its_consequence(
    tmp_path: Path, text: str, message: str
) -> None:
    """What happens instead stands behind the colon."""
    assert noted(tmp_path, text) == [("not-simulated", message)]


@pytest.mark.parametrize(
    ("api_version", "kind", "message"),
    [
        ("apps/v1", "Deploymnet", ("apps/v1 has no kind Deploymnet, which was left out: did you "
         "mean Deployment?")),
        (
            "v1",
            "Configmap",
            "v1 has no kind Configmap, which was left out: did you mean ConfigMap?",
        ),
        ("v1", "Deployment", ("v1 has no Deployment, which was left out: did you mean apps/v1 "
         "Deployment?")),
        ("app/v1", "DaemonSet", ("app/v1 has no DaemonSet, which was left out: did you mean "
         "apps/v1 DaemonSet?")),
    ],
)  # fmt: skip
def test_a_misspelt_kind_differs_from_one_that_no_rule_reads(
    tmp_path: Path, api_version: str, kind: str, message: str
) -> None:
    """An API server would refuse it."""
    assert noted(tmp_path, document(api_version, kind)) == [("misspelt-kind", message)]


def test_kinds_that_no_decision_depends_on_are_one_line(tmp_path: Path) -> None:
    """Custom resources without pods, and autoscalers that only recommend, are among them."""
    texts = [document("v1", "ConfigMap", name) for name in "ab"]
    texts += [document("cert-manager.io/v1", "Certificate"), document("v1", "Secret")]
    policy = {"updatePolicy": {"updateMode": "Off"}, "targetRef": TARGET}
    texts.append(document("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", spec=policy))
    hooks = [{"rules": [{"resources": ["services"]}]}]
    texts.append(
        document(
            "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", webhooks=hooks
        )
    )
    assert noted(tmp_path, *texts) == [
        (
            "unread-kind",
            (
                "no decision depends on these objects, which were left out: 1 Certificate, "
                "2 ConfigMap, 1 Secret, 1 ValidatingWebhookConfiguration, 1 VerticalPodAutoscaler"
            ),
        )
    ]


def _pod(name: str, kind: str, owner: str) -> str:
    reference = {"apiVersion": "x/v1", "kind": kind, "name": owner, "uid": owner}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "shop",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{**reference, "controller": True}],
            },
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
    )


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_custom_controller_of_pods_is_named_with_them(tmp_path: Path, *, is_listed: bool) -> None:
    """It has no template, so that only its pods show that it makes any; a mirror pod has none."""
    own = document("core.strimzi.io/v1beta2", "StrimziPodSet", "kafka", spec={"pods": []})
    texts = [_pod(f"kafka-{number}", "StrimziPodSet", "kafka") for number in range(3)]
    texts += [_pod("proxy-node-1", "Node", "node-1"), document("v1", "Secret")]
    assert noted(tmp_path, *texts, *((own,) if is_listed else ())) == [
        (
            "not-simulated",
            (
                "StrimziPodSet shop/kafka has 3 pods: no controller of it is simulated, so that "
                "none is made again when one goes"
            ),
        ),
        ("unread-kind", "no decision depends on these objects, which were left out: 1 Secret"),
    ]


def test_of_two_documents_of_one_rollout_the_later_one_counts(tmp_path: Path) -> None:
    """The living one requests 12, the manifest 40."""
    texts = [
        document(
            "argoproj.io/v1alpha1",
            "Rollout",
            "canary",
            spec={"replicas": replicas, "template": TEMPLATE},
        )
        for replicas in (12, 40)
    ]
    ((_, message),) = noted(tmp_path, *texts)
    assert message.startswith("Rollout shop/canary asks for 40 replicas")


def test_an_enforced_pod_security_standard_is_noted(tmp_path: Path) -> None:
    """Of a Namespace, which a trace carries."""
    text = """
        apiVersion: v1
        kind: Namespace
        metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: restricted}}
    """
    assert noted(tmp_path, text) == [
        (
            "not-simulated",
            "Namespace shop enforces the pod security standard restricted: pods are not checked",
        )
    ]
