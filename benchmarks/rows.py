"""The rows of `make bench`: what each replays, how it is counted, and what stands beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.million_workload import workload
from benchmarks.workloads import (
    at_once,
    few,
    preempted,
    replaced,
    scheduler_perf,
    waiting,
    with_devices,
)
from replay.generate.presets import openb_like
from replay.generate.workload import GenerateOptions, generate
from replay.importers.registry import open_trace
from reprieve.trace.v1beta1.trace_pb2 import Record

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples" / "traces"
TRACES = ROOT.parent / "shared" / "traces"
RECORDINGS = TRACES / "recordings"
OPENB = tuple(
    TRACES / "k8s-sims-results" / "vanilla" / f"{kind}-1200.yaml.gz" for kind in ("nodes", "pods")
)
QUICK_MILLION = 100
PODS, PREEMPTORS, ATTEMPTS, RUNS = "pods/s", "preemptors/s", "attempts/s", "runs/s"
_PERF = "scheduler_perf v1.36.2 with etcd and API server, two cores, give or take 40 %"
_CYCLES = "kube-scheduler v1.34.1's cycles in process, all nodes scored, in a CPU second"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """What was measured of the real thing, or of what users would take instead, and where."""

    figure: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A workload and how it is measured; `records` makes it, small where its argument is True.

    unit: what is counted in a second; `phase`: from the trace's marker on, as scheduler_perf counts
    from its collectMetrics, not from the beginning.
    spans: which pods have spans unless the command line says otherwise.
    program: the trace is played by the command `reprieve replay`, from its start to its end;
    `first`: with no compiled kernels on disk, as after an install.
    needs: files without which the row is left out.
    scheduler: a module of this package, with its arguments, that serves a scheduler in place of
    ours.
    long: the row is run only when it is asked for with --million.
    """

    name: str
    records: Callable[[bool], Iterable[Record]]
    unit: str = PODS
    phase: bool = False
    spans: str = "all"
    program: bool = False
    first: bool = False
    needs: tuple[Path, ...] = ()
    scheduler: tuple[str, ...] = ()
    long: bool = False
    upstream: Upstream | None = None


def _perf(case: str, nodes: int, pods: int, measured: int) -> Callable[[bool], Iterable[Record]]:
    """Return a test case of scheduler_perf, with the counts of upstream's 5Nodes where small."""

    def records(quick: bool) -> Iterable[Record]:
        if quick:
            return scheduler_perf(case, nodes=5, pods=min(pods // nodes, 4) * 5, measured=5)
        return scheduler_perf(case, nodes=nodes, pods=pods, measured=measured)

    return records


def _at_once(nodes: int, shapes: int) -> Row:
    def records(quick: bool) -> Iterable[Record]:
        return at_once(20, 100, min(shapes, 50)) if quick else at_once(nodes, 20_000, shapes)

    name = f"AtOnce/{nodes}Nodes_{shapes}Shape{'s' if shapes > 1 else ''}"
    real = Upstream(figure="57-70", source=_CYCLES) if nodes == 5000 else None
    return Row(name=name, records=records, spans="off", upstream=real)


def _devices(*, claims: bool) -> Row:
    def records(quick: bool) -> Iterable[Record]:
        return with_devices(*((5, 20) if quick else (1000, 5000)), claims=claims)

    name = f"Devices/1000Nodes_5000{'Claims' if claims else 'ExtendedResources'}"
    return Row(name=name, records=records, spans="off")


def _waiting(pods: int) -> Row:
    def records(quick: bool) -> Iterable[Record]:
        return waiting(5, 20, 10) if quick else waiting(1000, pods, 2000)

    return Row(name=f"Waiting/{pods}Pods", records=records, phase=True)


def _preempted(victims: int) -> Row:
    def records(quick: bool) -> Iterable[Record]:
        return preempted(5, 2) if quick else preempted(1000, victims)

    name = f"Preempted/{victims}Victim{'s' if victims > 1 else ''}"
    return Row(name=name, records=records, unit=PREEMPTORS, phase=True)


def _million(pods: int) -> Row:
    """Pods in whole seconds, as API servers write times; higher tiers preempt in the rushes."""

    def records(quick: bool) -> Iterable[Record]:
        return workload(QUICK_MILLION, nodes=20) if quick else workload(pods)

    return Row(name=f"Million/{pods}Pods", records=records, spans="1%", long=True)


def _one_by_one(quick: bool) -> Iterable[Record]:
    if quick:
        return workload(QUICK_MILLION, nodes=20, spread=True)
    return workload(10_000, spread=True)


def _recording(quick: bool) -> Iterable[Record]:
    return open_trace([RECORDINGS / ("a" if quick else "b2")])


def _four_tiers(quick: bool) -> Iterable[Record]:
    return generate(GenerateOptions(nodes=4, pods=60) if quick else GenerateOptions())


def _replaced(quick: bool) -> Iterable[Record]:
    return replaced(5, 4, 2) if quick else replaced(1000, 500, 10)


def _openb(quick: bool) -> Iterable[Record]:
    records = open_trace(list(OPENB))
    return few(records, nodes=20, pods=100) if quick else records


def _openb_like(quick: bool) -> Iterable[Record]:
    return few(openb_like(), nodes=20, pods=100) if quick else openb_like()


def _nginx(_quick: bool) -> Iterable[Record]:
    return open_trace([EXAMPLES / "nginx-preemption.jsonl"])


_ONE_BY_ONE = Upstream(figure="343-374", source=_CYCLES)
_KCS = Upstream(
    figure="in 19 s",
    source="kcs, the fastest simulator with published times; the real scheduler on kwok: 329 s",
)
ROWS = (
    Row(
        name="SchedulingBasic/5000Nodes_10000Pods",
        records=_perf("SchedulingBasic", 5000, 1000, 10_000),
        phase=True,
        upstream=Upstream(figure="230", source=_PERF),
    ),
    Row(name="OneByOne/1000Nodes_10000Pods", records=_one_by_one, upstream=_ONE_BY_ONE),
    Row(name="FirstFit/Windows", records=_one_by_one, scheduler=("first_fit", "--windows")),
    Row(name="FirstFit/NoWindows", records=_one_by_one, scheduler=("first_fit",)),
    Row(
        name="Recording/b2",
        records=_recording,
        unit=ATTEMPTS,
        needs=(RECORDINGS,),
        upstream=Upstream(figure="in 7 min", source="the recorded cluster itself, v1.36.2"),
    ),
    Row(name="Deployments/500Budgets_5000Pods", records=_replaced, phase=True),
    _million(100_000),
    _million(1_000_000),
    Row(name="FourTiers", records=_four_tiers, unit=ATTEMPTS),
    Row(name="FourTiers/NoSpans", records=_four_tiers, unit=ATTEMPTS, spans="off"),
    Row(
        name="PreemptionBasic/5000Nodes",
        records=_perf("PreemptionBasic", 5000, 20_000, 5000),
        unit=PREEMPTORS,
        phase=True,
        upstream=Upstream(figure="20", source=f"{_PERF}; with 1,000 nodes"),
    ),
    Row(name="OpenB/Published", records=_openb, needs=OPENB, upstream=_KCS),
    Row(name="OpenB/LookAlike", records=_openb_like),
    _at_once(5000, 1),
    _at_once(5000, 500),
    _at_once(50_000, 1),
    _at_once(50_000, 500),
    Row(
        name="TopologySpreading/5000Nodes",
        records=_perf("TopologySpreading", 5000, 5000, 2000),
        phase=True,
        upstream=Upstream(figure="144", source=_PERF),
    ),
    Row(
        name="SchedulingPodAntiAffinity/5000Nodes",
        records=_perf("SchedulingPodAntiAffinity", 5000, 1000, 1000),
        phase=True,
        upstream=Upstream(figure="119", source=_PERF),
    ),
    _devices(claims=False),
    _devices(claims=True),
    *(_waiting(pods) for pods in (10, 1000, 10_000)),
    *(_preempted(victims) for victims in (1, 10, 30)),
    Row(name="NginxDemo/First", records=_nginx, unit=RUNS, program=True, first=True),
    Row(name="NginxDemo/Later", records=_nginx, unit=RUNS, program=True),
)


def chosen(names: str) -> list[Row]:
    """Return the rows of these names, or beginnings of names up to "/"; all rows for "".

    Raises ValueError for a name that no row has.
    """
    wanted = [name for name in names.split(",") if name]
    for name in wanted:
        if not any(_is_named(row, name) for row in ROWS):
            known = ", ".join(row.name for row in ROWS)
            raise ValueError(f"no row is named {name}; the rows are {known}")
    return [row for row in ROWS if not wanted or any(_is_named(row, name) for name in wanted)]


def _is_named(row: Row, name: str) -> bool:
    return name in (row.name, row.name.partition("/")[0])
