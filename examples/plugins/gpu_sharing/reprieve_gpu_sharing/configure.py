"""The scheduler configurations of three policies for a trace: random, best fit, and FGD.

    python -m reprieve_gpu_sharing.configure FOLDER TRACE...

FGD's workload is the distribution of the trace's own pods, pods without a GPU among them.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 4, where every kind of task
counts. (The artefact of the paper can leave out the rarest kinds.)
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import yaml

from replay.importers.registry import open_trace
from replay.overrides.requests import pod_requests
from reprieve.kube.v1alpha1 import pod_pb2
from reprieve.trace.v1alpha1 import trace_pb2
from reprieve_gpu_sharing.asked import COUNT, MILLI, MODEL

_Kind = tuple[int, int, int, tuple[str, ...]]
_RANDOM, _BEST_FIT, _FGD = "random", "best-fit", "fgd"


def workload(records: Iterable[trace_pb2.Record]) -> list[dict[str, object]]:
    """Return the kinds of tasks of a trace, the most frequent first."""
    counts: Counter[_Kind] = Counter()
    templates: dict[int, pod_pb2.PodSpec] = {}
    for record in records:
        if record.HasField("template"):
            templates[record.template.id] = record.template.pod.spec
        elif record.HasField("pod_create"):
            create = record.pod_create
            counts[_kind(templates.get(create.template_id, create.pod.spec))] += 1
    return [
        {"cpuMilli": cpu, "gpus": gpus, "gpuMilli": milli, "models": list(models), "share": count}
        for (cpu, gpus, milli, models), count in sorted(
            counts.items(), key=lambda item: (-item[1], item[0])
        )
    ]


def configuration(policy: str, kinds: list[dict[str, object]]) -> dict[str, object]:
    """Return the KubeSchedulerConfiguration of a policy."""
    sharing: dict[str, object] = {"select": "best"}
    score: list[dict[str, object]] = []
    plugin_config: list[dict[str, object]] = [
        {"name": "NodeResourcesFit", "args": {"ignoredResourceGroups": [COUNT.partition("/")[0]]}},
    ]
    match policy:
        case "random":
            sharing = {"select": "random"}
        case "best-fit":
            score = [{"name": "GpuBestFit"}]
        case _:
            sharing = {"select": "fragmentation", "workload": kinds}
            score = [{"name": "GpuFragmentation"}]
            plugin_config.append({"name": "GpuFragmentation", "args": {"workload": kinds}})
    plugins = {
        "multiPoint": {"enabled": [{"name": "GpuSharing"}]},
        "preScore": {"disabled": [{"name": "*"}]},
        "score": {"disabled": [{"name": "*"}], "enabled": score},
    }
    plugin_config.append({"name": "GpuSharing", "args": sharing})
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": plugins, "pluginConfig": plugin_config}],
    }


def _kind(spec: pod_pb2.PodSpec) -> _Kind:
    amounts = pod_requests(spec)
    gpus = amounts.get(COUNT, 0)
    terms = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    models = sorted(
        value
        for term in terms.node_selector_terms
        for expression in term.match_expressions
        if expression.key == MODEL
        for value in expression.values
    )
    each = amounts.get(MILLI, 0) // gpus if gpus else 0
    return amounts.get("cpu", 0), gpus, each, tuple(models)


def main() -> None:
    """Write random.yaml, best-fit.yaml and fgd.yaml into a folder."""
    if len(sys.argv) < 3:
        sys.exit("usage: python -m reprieve_gpu_sharing.configure FOLDER TRACE...")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    kinds = workload(open_trace(sys.argv[2:]))
    for policy in (_RANDOM, _BEST_FIT, _FGD):
        text = yaml.safe_dump(configuration(policy, kinds), sort_keys=False)
        (folder / f"{policy}.yaml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
