"""Manifests that an API server refuses: by themselves, and as a change of what exists.

The refusals are those of kubernetes v1.34 pkg/apis/{apps,batch,core,policy}/validation.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from replay.errors import TraceError
from replay.importers.kubernetes.applied import applied
from replay.importers.kubernetes.validity import refuse_change, refuse_invalid
from replay.kube.kinds import read_object

Raw = dict[str, Any]


def _template(**spec: Any) -> Raw:
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "web:1"}], **spec},
    }


def _manifest(kind: str, version: str = "apps/v1", **spec: Any) -> Raw:
    own = {"selector": {"matchLabels": {"app": "web"}}, "template": _template(), **spec}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "web"}, "spec": own}


def _resources(**resources: Raw) -> Raw:
    return _template(containers=[{"name": "main", "resources": resources}])


_ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}
_PORTS = [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 81}]}]


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (_manifest("Deployment", selector={}), "spec.selector: Required value"),
        (
            _manifest("ReplicaSet", selector={"matchLabels": {"app": "other"}}),
            "spec.template.metadata.labels: Invalid value: {'app': 'web'}: `selector` does not",
        ),
        (
            _manifest("Deployment", strategy=_ROLLING),
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when",
        ),
        (
            _manifest("DaemonSet", template=_template(restartPolicy="OnFailure")),
            'spec.template.spec.restartPolicy: Unsupported value: "OnFailure": supported',
        ),
        (
            _manifest("Job", "batch/v1", selector=None),
            'spec.template.spec.restartPolicy: Unsupported value: "Always": supported values: "OnF',
        ),
        (
            _manifest("Deployment", template=_template(os={"name": "plan9"})),
            'spec.template.spec.os: Unsupported value: "plan9": supported values: "linux", "win',
        ),
        (
            _manifest("Deployment", template=_template(os={})),
            "spec.template.spec.os.name: Required value: cannot be empty",
        ),
        (
            _manifest("Deployment", template=_template(hostNetwork=True, containers=_PORTS)),
            "spec.template.spec.containers[0].ports[0].hostPort: Invalid value: 81: must match",
        ),
        (
            _manifest("StatefulSet", template=_resources(requests={"nvidia.com/gpu": "1"})),
            "spec.template.spec.containers[0].resources.limits: Required value: Limit must be set",
        ),
        (
            _manifest(
                "Deployment",
                template=_resources(
                    requests={"hugepages-2Mi": "2Mi"}, limits={"hugepages-2Mi": "4Mi"}
                ),
            ),
            'spec.template.spec.containers[0].resources.requests: Invalid value: "2Mi": must',
        ),
        (
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "web"},
                "spec": {"minAvailable": 1, "maxUnavailable": 1},
            },
            "spec: Invalid value: minAvailable and maxUnavailable cannot be both set",
        ),
    ],
)
def test_an_invalid_manifest_is_refused_with_its_field(manifest: Raw, problem: str) -> None:
    """The file and its line come first, then the name."""
    with pytest.raises(TraceError) as caught:
        refuse_invalid("web.yaml, line 1", read_object("web.yaml", manifest))
    refusal = f"web.yaml, line 1: web: an API server refuses it: {problem}"
    assert str(caught.value).startswith(refusal)


@pytest.mark.parametrize(
    "manifest",
    [
        _manifest("Deployment", strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
        _manifest("Deployment", strategy={"rollingUpdate": {"maxUnavailable": 0}}),
        _manifest("Job", "batch/v1", selector=None, template=_template(restartPolicy="Never")),
        _manifest("Deployment", template=_resources(limits={"nvidia.com/gpu": "1"})),
        _manifest(
            "Deployment",
            template=_resources(requests={"nvidia.com/gpu": "1"}, limits={"nvidia.com/gpu": 1}),
        ),
        _manifest("Deployment", template=_resources(requests={"cpu": "1"}, limits={"cpu": "2"})),
    ],
)
def test_a_valid_manifest_is_accepted(manifest: Raw) -> None:
    """The nearest valid neighbours of what is refused."""
    refuse_invalid("web.yaml", read_object("web.yaml", manifest))


_CLAIM: Raw = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}},
}
_LIVE_CLAIM: Raw = {
    **_CLAIM,
    "metadata": {"name": "data", "creationTimestamp": None},
    "spec": {**_CLAIM["spec"], "volumeMode": "Filesystem"},
    "status": {"phase": "Pending"},
}
_NEVER = _template(restartPolicy="Never")
_LIVE = {
    "Deployment": _manifest("Deployment"),
    "StatefulSet": _manifest(
        "StatefulSet",
        podManagementPolicy="OrderedReady",
        serviceName="web",
        volumeClaimTemplates=[_LIVE_CLAIM],
    ),
    "DaemonSet": _manifest("DaemonSet"),
    "Job": _manifest("Job", "batch/v1", completions=3, completionMode="Indexed", template=_NEVER),
}
_IMAGE = {"template": {"spec": {"containers": [{"name": "main", "image": "web:2"}]}}}
_OTHER_SELECTOR = {
    "selector": {"matchLabels": {"app": "shop"}},
    "template": {"metadata": {"labels": {"app": "shop"}}},
}


def _refuse_change(kind: str, change: Raw, **live: Any) -> None:
    raw = copy.deepcopy(_LIVE[kind])
    raw["spec"] |= live.get("spec", {})
    raw["status"] = live.get("status", {})
    manifest = {**raw, "spec": change}
    manifest.pop("status")
    before = read_object("cluster.yaml", raw)
    made = applied(before, read_object("web.yaml", manifest))
    refuse_change("web.yaml, line 1", before, made)


@pytest.mark.parametrize(
    ("kind", "change", "problem"),
    [
        ("Deployment", _OTHER_SELECTOR, "spec.selector: Invalid value: {'app': 'shop'}: field is"),
        ("DaemonSet", _OTHER_SELECTOR, "spec.selector: Invalid value: {'app': 'shop'}: field is"),
        ("StatefulSet", {"serviceName": "other"}, "spec: Forbidden: updates to statefulset spec"),
        ("StatefulSet", {"podManagementPolicy": "Parallel"}, "spec: Forbidden: updates to statef"),
        (
            "StatefulSet",
            {
                "volumeClaimTemplates": [
                    {
                        "metadata": {"name": "data"},
                        "spec": {
                            "accessModes": ["ReadWriteOnce"],
                            "resources": {"requests": {"storage": "20Gi"}},
                        },
                    }
                ]
            },
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas'",
        ),
        ("Job", _IMAGE, "spec.template: Invalid value: field is immutable"),
        ("Job", {"completions": 4}, "spec.completions: Invalid value: 4: field is immutable"),
        ("Job", {"completionMode": "NonIndexed"}, "spec.completionMode: Invalid value: field is"),
        (
            "Deployment",
            {"template": {"spec": {"restartPolicy": "Never"}}},
            'spec.template.spec.restartPolicy: Unsupported value: "Never"',
        ),
    ],
)
def test_a_change_of_what_cannot_change_is_refused(kind: str, change: Raw, problem: str) -> None:
    """As `kubectl apply` fails; what the manifest leaves out stays as it is."""
    with pytest.raises(TraceError) as caught:
        _refuse_change(kind, change)
    refusal = f"web.yaml, line 1: web: an API server refuses it: {problem}"
    assert str(caught.value).startswith(refusal)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("Deployment", _IMAGE),
        ("Deployment", {"replicas": 5}),
        ("DaemonSet", _IMAGE),
        ("StatefulSet", {**_IMAGE, "replicas": 2, "updateStrategy": {"type": "OnDelete"}}),
        ("StatefulSet", {"volumeClaimTemplates": [_CLAIM]}),
        ("Job", {"parallelism": 2, "suspend": True}),
        ("Job", {"parallelism": 4, "completions": 4}),
    ],
)
def test_any_other_change_is_accepted(kind: str, change: Raw) -> None:
    """The API server's defaults in the object that exists are no change."""
    _refuse_change(kind, change)


def test_a_suspended_job_that_has_not_started_may_run_elsewhere() -> None:
    """Its node selector may change, its image may not; once it has started, neither may."""
    elsewhere = {"template": {"spec": {"nodeSelector": {"pool": "gpu"}}}}
    suspended = {"suspend": True}
    _refuse_change("Job", elsewhere, spec=suspended)
    with pytest.raises(TraceError, match=r"spec\.template: Invalid value: field is immutable"):
        _refuse_change("Job", _IMAGE, spec=suspended)
    started = {"startTime": "2026-03-02T09:00:00Z"}
    with pytest.raises(TraceError, match=r"spec\.template: Invalid value: field is immutable"):
        _refuse_change("Job", elsewhere, spec=suspended, status=started)
