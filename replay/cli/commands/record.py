"""`reprieve record`: records a live cluster as a trace."""

from __future__ import annotations

import contextlib
import functools
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.live import Live
from rich.text import Text

from replay.cli.console import TerminalConsole
from replay.cli.errors import (
    HUNG_UP,
    INTERRUPTED,
    REFUSED,
    SERVICE,
    TERMINATED,
    UNWRITABLE,
    ExitError,
    refusing_traces,
)
from replay.cli.parameters import TRACE_FILE
from replay.cli.traces import bound_options, write_trace
from replay.errors import (
    DISK,
    AllRefusedError,
    ApiError,
    KubeconfigError,
    OutputError,
    RecordError,
    RunError,
    UnreachableError,
)
from replay.interrupts import StopSignals
from replay.options import DURATION, FOLDER, ParsedParam
from replay.results.durations import simulated
from services.kube import quantity
from services.kube.time import SECOND_NS
from services.terminal import counted, echo

if TYPE_CHECKING:
    from replay.record.recorder import RecordingProgress
    from replay.record.session import RecordingRequest, RecordingResult

_PERIOD_S = 0.25


_USAGE = "auto|kubelet|metrics|prometheus=URL|off"


def _usage_source(text: str) -> str:
    """Validate the argument of --usage. Raises ValueError."""
    url = text.removeprefix("prometheus=")
    is_url = url != text and url.startswith(("http://", "https://"))
    if not is_url and text not in {"auto", "kubelet", "metrics", "off"}:
        # A URL may contain a password.
        shown = "the URL" if "@" in text else repr(text)
        raise ValueError(f"{shown} is not a source of usage; write {_USAGE}")
    return text


def _namespace(text: str) -> str:
    """Return the name of a namespace. Raises ValueError for any other text."""
    from replay.record.coverage import is_namespace_name  # noqa: PLC0415 - loaded when needed

    if not is_namespace_name(text):
        problem = "is not the name of a namespace; repeat -n for each, or leave it out for all"
        raise ValueError(f"{text!r} {problem}")
    return text


def _size(text: str) -> int:
    """Return a number of bytes. Raises ValueError for a text that is not a size above 0."""
    try:
        number = quantity.value(text)
    except quantity.QuantityError:
        number = 0
    if number <= 0:
        raise ValueError(f"{text!r} is not a size; write 256Mi")
    return number


def _bound_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each bound; the command receives one argument, `bounds`."""

    def with_bounds(**values: Any) -> Any:
        bounds = {name: values.pop(name) for name in _BOUNDS}
        seconds = {name: value / 1e9 for name, value in bounds.items() if name.endswith("_s")}
        return command(bounds=bounds | seconds, **values)

    functools.update_wrapper(with_bounds, command)
    for name, (option, default, text) in reversed(_BOUNDS.items()):
        with_bounds = click.option(
            option,
            name,
            type=DURATION if name.endswith("_s") else ParsedParam("SIZE", _size),
            default=default,
            show_default=True,
            help=text,
        )(with_bounds)
    return with_bounds


_BOUNDS = {
    "connect_s": ("--connect-timeout", "10s", "The longest time to connect."),
    "idle_s": (
        "--idle-timeout",
        "1m",
        "The longest time without a byte of an answer; watches have 150s.",
    ),
    "request_s": (
        "--request-timeout",
        "5m",
        "The longest time of a request with its whole answer.",
    ),
    "usage_s": ("--usage-timeout", "30s", "The same for a source of usage."),
    "end_s": (
        "--end-timeout",
        "5s",
        "The longest time to ask, at the end, whether anything is missing.",
    ),
    "response_bytes": (
        "--max-response-bytes",
        "256Mi",
        "The largest answer, such as a page of a list.",
    ),
    "usage_bytes": ("--max-usage-bytes", "64Mi", "The largest answer of a source of usage."),
    "event_bytes": ("--max-event-bytes", "16Mi", "The largest event of a watch."),
    "list_bytes": ("--max-list-bytes", "4Gi", "The largest total of the objects of one kind."),
}
"""Option, default and help by the field of RequestBounds."""


@click.command(name="record")
@click.option(
    "-o", "--output", required=True, type=TRACE_FILE, help="The new trace: .ktr or .jsonl."
)
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The kubeconfig of the cluster. [default: $KUBECONFIG, ~/.kube/config, or the service "
    "account of the pod]",
)
@click.option("--context", default="", help="A context of the kubeconfig. [default: the current]")
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    type=ParsedParam("NAME", _namespace),
    multiple=True,
    help="Record namespaced objects of this namespace only, as with rights in some namespaces. "
    "Repeatable. [default: all]",
)
@click.option(
    "--for",
    "for_ns",
    type=DURATION,
    help="The duration of the recording, such as 10m. [default: until Ctrl-C]",
)
@click.option(
    "--usage",
    "usage_source",
    type=ParsedParam(_USAGE, _usage_source),
    default="auto",
    metavar=_USAGE,
    show_default=True,
    help="The source of the usage of pods. Kubelets report most, metrics.k8s.io reports memory and "
    "CPU; auto selects the first that answers.",
)
@click.option(
    "--usage-every",
    "usage_every_ns",
    type=DURATION,
    default="15s",
    show_default=True,
    help="The time between two samples of usage.",
)
@click.option("--redact", is_flag=True, help="Hash names, namespaces, label values and images.")
@click.option(
    "--redact-key",
    default="",
    envvar="REPRIEVE_REDACT_KEY",
    show_envvar=True,
    help="The key of the hashes: recordings with the same key have the same names. [default: "
    "random, and not kept]",
)
@_bound_options
@click.option(
    "--frames",
    type=FOLDER,
    help="Keep the recorded watches in this folder. [default: TRACE.frames, removed when the trace "
    "is written]",
)
@click.option(
    "--from",
    "left_folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Do not record: make the trace of an earlier recording from its folder.",
)
@bound_options
def command(
    *,
    output: Path,
    kubeconfig: Path | None,
    context: str,
    namespaces: tuple[str, ...],
    for_ns: int | None,
    usage_source: str,
    usage_every_ns: int,
    redact: bool,
    redact_key: str,
    bounds: dict[str, Any],
    frames: Path | None,
    left_folder: Path | None,
) -> None:
    """Record a live cluster by list and watch, with the usage of its pods, as a trace.

    Ctrl-C (or --for, or SIGTERM) ends the recording and writes the trace; a second Ctrl-C keeps the
    recorded watches and writes no trace. docs/record.md has the ClusterRole, or the Role for
    each namespace, that is needed, and what each exit code means.

    \b
    Examples:
      reprieve record -o today.ktr --for 10m
      reprieve record --kubeconfig admin.conf --context prod -o prod.ktr --redact
      reprieve record -n team-a -n team-b -o teams.ktr  # with rights there only
      reprieve record -o today.ktr --usage prometheus=http://127.0.0.1:9090
      reprieve record -o today.ktr --frames today/  # for --compare-recorded
      reprieve record --from today.ktr.frames -o today.ktr  # after a crash
      reprieve validate today.ktr && reprieve replay today.ktr
    """
    if left_folder is not None:
        _write(output, left_folder)
        return
    if usage_every_ns < SECOND_NS:
        raise ExitError(
            REFUSED, "--usage-every: kubelets measure usage about every 10 s; give 1s or more"
        )
    if not output.absolute().parent.is_dir():
        problem = f"the folder {output.absolute().parent} does not exist; create it"
        raise ExitError(REFUSED, f"{output}: {problem}")
    with StopSignals() as signals:
        with _refusing(signals):
            from replay.record.http_client import RequestBounds  # noqa: PLC0415 - when needed
            from replay.record.session import RecordingRequest  # noqa: PLC0415 - when needed

            recorded = _record(
                RecordingRequest(
                    kubeconfig=kubeconfig,
                    context=context,
                    usage=usage_source,
                    usage_every_s=usage_every_ns / 1e9,
                    redact_key=redact_key.encode() or (secrets.token_bytes(32) if redact else None),
                    folder=frames or output.with_name(f"{output.name}.frames"),
                    bounds=RequestBounds(**bounds),
                    namespaces=tuple(dict.fromkeys(namespaces)),
                ),
                for_ns,
                signals,
            )
        _write(output, recorded.folder.path, signals)
    if frames is None and not recorded.missing:
        shutil.rmtree(recorded.folder.path)
    _print_result(recorded)
    kept = f"; all that was received is in {recorded.folder.path}" if recorded.missing else ""
    if recorded.broken:
        code = UNWRITABLE if recorded.is_disk else SERVICE
        raise ExitError(code, f"the recording ended early: {recorded.broken}{kept}")
    if recorded.missing:
        problem = f"the end of the recording is missing: {recorded.missing}"
        raise ExitError(SERVICE, f"{problem}{kept}")
    if signals.code in {TERMINATED, HUNG_UP}:
        name = signal.Signals(signals.number).name
        raise ExitError(
            signals.code, f"{name} ended the recording; the trace is complete until then"
        )


@contextlib.contextmanager
def _refusing(signals: StopSignals) -> Iterator[None]:
    """Turn the errors of a recording into exit codes."""
    try:
        yield
    except (KubeconfigError, RunError) as error:
        raise ExitError(REFUSED, str(error)) from error
    except OutputError as error:
        raise ExitError(UNWRITABLE, str(error)) from error
    except RecordError as error:
        if signals.number:
            problem = "interrupted before anything was recorded"
            raise ExitError(signals.code, problem) from error
        raise ExitError(SERVICE, _advised(error)) from error
    except KeyboardInterrupt as error:
        raise ExitError(signals.code, "interrupted; no trace was written") from error


def _advised(error: RecordError) -> str:
    advice = ""
    if isinstance(error, ApiError) and error.status == 401:
        advice = ". The API server does not accept this user: renew the kubeconfig's credentials"
    elif isinstance(error, AllRefusedError):
        advice = f". {error.advice}"
    elif isinstance(error, UnreachableError):
        advice = ". Check --context, and that this machine can reach the API server"
    return f"{error}{advice}"


def _record(request: RecordingRequest, for_ns: int | None, signals: StopSignals) -> RecordingResult:
    """Record until the time is over or a signal arrives, and show the progress."""
    from replay.record.session import record_live  # noqa: PLC0415 - loaded when needed

    console = TerminalConsole(stderr=True)
    shown = Live(Text("connecting to the API server"), console=console, transient=True)
    began = time.monotonic()
    with shown if console.is_terminal else contextlib.nullcontext():

        def keep_going(state: RecordingProgress) -> bool:
            seconds = time.monotonic() - began
            if console.is_terminal and state.statuses:
                shown.update(Text(line(seconds, state)))
            left_s = _PERIOD_S if for_ns is None else min(_PERIOD_S, for_ns / 1e9 - seconds)
            if left_s <= 0 or signals.number:
                return False
            time.sleep(left_s)
            return not signals.number

        return record_live(request, keep_going)


def line(seconds: float, state: RecordingProgress) -> str:
    """Return the progress line of a recording."""
    parts = [
        f"{simulated(int(seconds) * SECOND_NS)} recorded",
        f"{state.listed} of {len(state.statuses)} kinds listed",
        counted(state.objects, "object"),
        counted(state.events, "event"),
        f"{counted(state.samples, 'sample')} of usage",
    ]
    problems = [*state.problems, state.usage_problem]
    return " · ".join([*parts, *filter(None, problems), "Ctrl-C ends"])


def _print_result(recorded: RecordingResult) -> None:
    state, version = recorded.state, recorded.version or "of an unknown version"
    seconds = simulated(round(recorded.seconds * SECOND_NS))
    echo(f"recorded  {seconds} of {recorded.server} ({version})", err=True)
    for name, status in state.statuses.items():
        if status.is_listed and (status.listed or status.events):
            events = counted(status.events, "event")
            echo(f"          {name}: {status.listed:,} listed, {events}", err=True)
    if recorded.usage:
        echo(f"usage     {recorded.usage}, samples: {state.samples:,}", err=True)
    else:
        why = state.usage_problem or recorded.usage_why
        text = f"usage     not recorded ({why}): no kubelet evicts a pod in a replay"
        echo(text, err=True)
    for note in recorded.notes:
        echo(f"note      {note}", err=True)
    if recorded.hint:
        echo(f"hint      {recorded.hint}", err=True)


def _write(output: Path, folder: Path, signals: StopSignals | None = None) -> None:
    """Write the trace of a recording's folder; if that fails, the folder is kept."""
    from replay.record.frames import RecordingFolder  # noqa: PLC0415 - loaded when needed
    from replay.record.recorded_trace import trace_of  # noqa: PLC0415 - loaded when needed

    again = f"the recording is in {folder}; run reprieve record --from {folder} -o {output}"
    if signals is not None:
        signals.arm()
    try:
        with refusing_traces():
            write_trace(output, trace_of(RecordingFolder(folder)))
    except RecordError as error:
        raise ExitError(REFUSED, str(error)) from error
    except OutputError as error:
        raise ExitError(UNWRITABLE, f"{error}; {again}") from error
    except ExitError as error:
        is_disk = getattr(error.__cause__, "errno", None) in DISK
        raise ExitError(UNWRITABLE if is_disk else error.code, f"{error}; {again}") from error
    except KeyboardInterrupt as error:
        code = signals.code if signals is not None and signals.number else INTERRUPTED
        raise ExitError(code, f"no trace was written; {again}") from error
