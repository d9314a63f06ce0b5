"""The scheduler configurations of three policies for a trace: random, best fit, and FGD.

    python -m reprieve_gpu_sharing.configure [--popularity 0.95] FOLDER TRACE...

FGD's workload is the distribution of the trace's own pods, pods without a GPU among them: all kinds
of tasks, as in the paper, or with `--popularity` the most frequent ones that make up that share of
the pods, as in the paper's artefact.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 4;
hkust-adsl/kubernetes-scheduler-simulator pkg/utils/frag.go, GetTypicalPods.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from replay.importers.registry import open_trace
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from reprieve_gpu_sharing.asked import COUNT, MILLI, MODEL
from services.kube.requests import pod_requests
from services.rpc.kube.spec import spec_from_message

_Kind = tuple[int, int, int, tuple[str, ...]]
_RANDOM, _BEST_FIT, _FGD = "random", "best-fit", "fgd"


def workload(
    records: Iterable[trace_pb2.Record], popularity: float = 1.0
) -> list[dict[str, object]]:
    """Return the kinds of tasks of a trace, the most frequent first, and then the largest.

    As many as make up the share `popularity` of the pods; their shares are counts.
    """
    counts: Counter[_Kind] = Counter()
    templates: dict[int, pod_pb2.PodSpec] = {}
    for record in records:
        if record.HasField("template"):
            templates[record.template.id] = record.template.pod.spec
        elif record.HasField("pod_create"):
            create = record.pod_create
            counts[_kind(templates.get(create.template_id, create.pod.spec))] += 1
    wanted = popularity * counts.total()
    kinds: list[dict[str, object]] = []
    for count, (cpu, milli, gpus, models) in sorted(
        ((count, kind) for kind, count in counts.items()), reverse=True
    ):
        if wanted <= 0:
            break
        wanted -= count
        kinds.append(
            {"cpuMilli": cpu, "gpus": gpus, "gpuMilli": milli, "models": list(models)}
            | {"share": count}
        )
    return kinds


def configuration(policy: str, kinds: list[dict[str, object]]) -> dict[str, object]:
    """Return the KubeSchedulerConfiguration of a policy."""
    sharing: dict[str, object] = {"select": "best"}
    score: list[dict[str, object]] = []
    plugin_config: list[dict[str, object]] = [
        {"name": "NodeResourcesFit", "args": {"ignoredResourceGroups": [COUNT.partition("/")[0]]}}
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
    amounts = pod_requests(spec_from_message(spec, field="spec"))
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
    return amounts.get("cpu", 0), each, gpus, tuple(models)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write random.yaml, best-fit.yaml and fgd.yaml into a folder."""
    parser = argparse.ArgumentParser(
        prog="reprieve_gpu_sharing.configure", description=main.__doc__
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("trace", nargs="+")
    parser.add_argument(
        "--popularity",
        type=_share,
        default=1.0,
        metavar="SHARE",
        help="the share of the pods, above 0, whose kinds count in FGD's workload (default: all)",
    )
    asked = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    kinds = workload(open_trace(asked.trace), asked.popularity)
    for policy in (_RANDOM, _BEST_FIT, _FGD):
        text = yaml.safe_dump(configuration(policy, kinds), sort_keys=False)
        (asked.folder / f"{policy}.yaml").write_text(text, encoding="utf-8")


def _share(text: str) -> float:
    share = float(text)
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError("write a share above 0 and up to 1, such as 0.95")
    return share


if __name__ == "__main__":
    main()
