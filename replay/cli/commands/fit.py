"""`reprieve fit`: how many more of some pods fit in a cluster, and what stops the next one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import click

from replay.cli.errors import REFUSED, ExitError, refusing
from replay.cli.parameters import html_option, output_option, quiet_option
from replay.cli.searching import (
    SearchOptions,
    Shown,
    asked,
    conclude,
    conducted,
    runs_for,
    with_options,
)
from replay.durations import shown
from replay.errors import RunError
from replay.options import DURATION, takes
from replay.overrides.applied import Release, parse_apply
from replay.overrides.errors import OverrideError
from replay.results.run.directory import RunDirectory
from replay.search.answer import KnobSearch
from replay.search.fit import CopiedPods, fit_of, listed, waiting_already
from replay.search.knobs import Knob
from replay.search.line import LineSearch
from replay.search.runs import Tried
from replay.whatif.assertions import FigureError
from replay.whatif.sweep import GridError
from services.kube.time import MINUTE_NS

_GUESSED = 3
"""How many numbers are tried by the guess from the free room: none, and two."""


@click.command(name="fit")
@click.argument("replay", metavar="TRACE...|RUN PODS.yaml [-- REPLAY OPTIONS]", nargs=-1)
@click.option(
    "--may-preempt",
    is_flag=True,
    help="Let the pods displace others, and count whom. Default: nobody is preempted, and no other "
    "pod is left without a node.",
)
@click.option(
    "--at",
    "at_ns",
    type=DURATION,
    help="When the pods are created, since the start of the trace. Default: at its last record; of "
    "a cluster that kubectl printed, after 1m.",
)
@click.option(
    "--within",
    "within_ns",
    type=DURATION,
    default="1m",
    show_default=True,
    help="The time in which each of them must have a node. The replays end then.",
)
@click.option(
    "--max-limit",
    default=10_000,
    show_default=True,
    type=click.IntRange(1, 99_999),
    metavar="N",
    help="Look for no more than this number.",
)
@takes("options", SearchOptions)
@output_option("table", "json", "yaml", meaning="For people or for programs.")
@html_option
@quiet_option
@refusing(GridError, RunError, FigureError)
def command(
    *,
    replay: tuple[str, ...],
    may_preempt: bool,
    at_ns: int | None,
    within_ns: int,
    max_limit: int,
    options: SearchOptions,
    output: str,
    html: Path | None,
    quiet: bool,
) -> None:
    """Find how many more of the pods in PODS.yaml fit, and what stops the next one.

    PODS.yaml has a Pod (of several, one of each is a copy), and may have objects that it needs,
    such as a PriorityClass. Copies are created at one moment, as NAME-0, NAME-1 and so on; each
    number that is tried is a replay, and the answer has the two at the border: a guess from the
    free room is tried first.

    \b
    Examples:
      reprieve fit cluster.yaml more.yaml
      reprieve fit cluster.yaml more.yaml --may-preempt -o json
      reprieve fit recording/ more.yaml --at 2h -- --usage '* memory 200Mi'
    """
    paths, rest = _split(replay)
    *trace, manifests = paths
    if not trace:
        raise click.UsageError("give a trace, or a run, and a file with the pods that are added")
    release = _copied(manifests)
    pods = CopiedPods(
        pods=[
            manifest.message.pod
            for manifest in release.manifests.values()
            if manifest.message.HasField("pod")
        ]
    )
    for pod, (_, name) in zip(pods.pods, release.copied, strict=True):
        pod.metadata.name = name
    checks = pods.checks(may_preempt=may_preempt)
    question = asked("fit", (*trace, *rest), checks, allows_no_effect=True)
    moment_ns = _last_ns(question.arguments) if at_ns is None else at_ns
    question = dataclasses.replace(
        with_options(question, "--until", shown(moment_ns + within_ns)), moment=shown(moment_ns)
    )
    numbers = [str(number) for number in range(max_limit + 1)]
    knob = Knob(
        axis="apply",
        label=f"copies of {pods.names}",
        values=[f"{manifests},copies={number}" for number in numbers],
        shown=numbers,
    )
    line = LineSearch(max_limit + 1, first=[0])
    search = KnobSearch([knob], line=line)

    def saw(tried: Tried) -> None:
        run, copies = RunDirectory.open(tried.runs[tried.shows]), tried.point[0]
        if copies == 0 and not tried.holds:
            raise ExitError(REFUSED, _waiting(manifests, run, pods))
        if copies == 0:
            room = min(pods.free(run), max_limit)
            line.suggest(room, room + 1)
        elif not tried.holds and len(line.outcomes) <= _GUESSED:
            room = pods.bound(run, copies)
            line.suggest(room, room + 1)

    runs = runs_for(question, [knob], options)
    answer = conducted(search, runs, options, quiet=quiet, saw=saw)
    fit = fit_of(answer, pods)
    conclude(
        answer,
        runs,
        options,
        Shown(kind="fit", output=output, html=html, quiet=quiet),
        sentences=[*fit.sentences(pods), *list(answer.sentences())[-1:]],
        more={"fit": dataclasses.asdict(fit)},
    )


def _copied(manifests: str) -> Release:
    """Return the pods of a file, each as a copy. Raises ExitError, with the file and no option."""
    text = f"{manifests},copies=1"
    try:
        return parse_apply(text)
    except OverrideError as error:
        raise ExitError(REFUSED, str(error).replace(f"--apply {text}", manifests)) from error


def _waiting(manifests: str, run: RunDirectory, pods: CopiedPods) -> str:
    """Return that pods of the trace, which wait for a node, cannot be told from copies."""
    keys = waiting_already(run, pods)
    verb = "waits" if len(keys) == 1 else "wait"
    return (
        f"{manifests}: {listed(keys)} {verb} for a node already and would count as copies: give "
        "the pod that is copied another name"
    )


def _split(replay: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the paths, and the options of replay, which follow the first of them."""
    places = [place for place, text in enumerate(replay) if text.startswith("-")]
    first = places[0] if places else len(replay)
    return list(replay[:first]), list(replay[first:])


def _last_ns(arguments: Sequence[str]) -> int:
    """Return the time of a trace's last record since its start; 1m where all are at its start."""
    from replay.cli.commands.replay import command as replay_command  # noqa: PLC0415 - when needed

    times = [record.time_ns for record in replay_command.request(arguments).trace.records()]
    return max(times, default=0) - min(times, default=0) or MINUTE_NS
