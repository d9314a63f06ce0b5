"""`reprieve record`: a live cluster, as a trace."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from replay.cli.errors import INTERRUPTED, REFUSED, SERVICE, Endings, ExitError, refusing_traces
from replay.cli.parameters import DURATION, FOLDER, TRACE_FILE, Parsed
from replay.cli.traces import write_trace
from replay.errors import AllRefusedError, ApiError, KubeconfigError, RecordError, UnreachableError
from replay.results.durations import simulated

if TYPE_CHECKING:
    from replay.record.session import Recorded, State, Wishes

_PERIOD_S = 0.25
_EXTRA = 'recording needs the extra: pip install "reprieve[record]"'


_USAGE = "auto|kubelet|metrics|prometheus=URL|off"


def _usage_wish(text: str) -> str:
    """Return where usage is to come from."""
    url = text.removeprefix("prometheus=")
    is_url = url != text and url.startswith(("http://", "https://"))
    if not is_url and text not in {"auto", "kubelet", "metrics", "off"}:
        raise ValueError(f"{text!r} is no source of usage; write {_USAGE}")
    return text


@click.command(name="record")
@click.option(
    "-o",
    "--output",
    required=True,
    type=TRACE_FILE,
    help="Where to write the trace: .ktr or .jsonl.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="How to reach the cluster. [default: $KUBECONFIG, ~/.kube/config, or the pod's own "
    "service account]",
)
@click.option("--context", default="", help="A context of the kubeconfig. [default: the current]")
@click.option("--for", "for_ns", type=DURATION, help="How long. [default: until Ctrl-C]")
@click.option(
    "--usage",
    "usage_wish",
    type=Parsed(_USAGE, _usage_wish),
    default="auto",
    metavar=_USAGE,
    show_default=True,
    help="Where what pods use comes from: kubelets tell most, metrics.k8s.io memory and CPU.",
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
    help="What to hash with, so that several recordings agree. [default: random, and not kept]",
)
@click.option(
    "--frames",
    type=FOLDER,
    help="Keep what was received in this folder, as `watch` recordings. [default: TRACE.frames, "
    "removed once the trace is written]",
)
@click.option(
    "--from",
    "left_folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Record nothing: make the trace of what an earlier recording left in this folder.",
)
def command(
    *,
    output: Path,
    kubeconfig: Path | None,
    context: str,
    for_ns: int | None,
    usage_wish: str,
    usage_every_ns: int,
    redact: bool,
    redact_key: str,
    frames: Path | None,
    left_folder: Path | None,
) -> None:
    """Record a live cluster by list and watch, with what its pods use, as a trace.

    Ctrl-C (or --for) ends the recording and writes the trace; a second Ctrl-C leaves what was
    received where it is. What a cluster role must allow stands in docs/record.md.

    \b
    Examples:
      reprieve record -o today.ktr --for 10m
      reprieve record --kubeconfig admin.conf --context prod -o prod.ktr --redact
      reprieve record -o today.ktr --usage prometheus=http://127.0.0.1:9090
      reprieve record -o today.ktr --frames today/   # for replay --compare-recorded
      reprieve record --from today.ktr.frames -o today.ktr      # after a crash
      reprieve validate today.ktr && reprieve replay today.ktr
    """
    if left_folder is not None:
        _write(output, left_folder)
        return
    if usage_every_ns < 10**9:
        raise ExitError(
            REFUSED, "--usage-every: kubelets measure every 10 s or so; give 1s or more"
        )
    if not output.absolute().parent.is_dir():
        raise ExitError(REFUSED, f"{output}: there is no folder {output.absolute().parent}")
    with _refusing():
        from replay.record.session import Wishes  # noqa: PLC0415 - needs the extra

        recorded = _record(
            Wishes(
                kubeconfig=kubeconfig,
                context=context,
                usage=usage_wish,
                usage_every_s=usage_every_ns / 1e9,
                redact_key=redact_key.encode() or (secrets.token_bytes(32) if redact else None),
                folder=frames or output.with_name(f"{output.name}.frames"),
            ),
            for_ns,
        )
    _write(output, recorded.folder.path)
    if frames is None:
        shutil.rmtree(recorded.folder.path)
    _tell(recorded)
    if recorded.broken:
        raise ExitError(SERVICE, f"the recording ended early: {recorded.broken}")


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Turn what a recording fails of into an exit code."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "urllib3":
            raise
        raise ExitError(REFUSED, _EXTRA) from error
    except KubeconfigError as error:
        raise ExitError(REFUSED, str(error)) from error
    except RecordError as error:
        raise ExitError(SERVICE, _advised(error)) from error


def _advised(error: RecordError) -> str:
    """Return what went wrong with what can be done about it."""
    advice = ""
    if isinstance(error, ApiError) and error.status == 401:
        advice = ". The API server does not know this user: renew the kubeconfig's credentials"
    elif isinstance(error, AllRefusedError):
        advice = ". What a cluster role must allow stands in docs/record.md"
    elif isinstance(error, UnreachableError):
        advice = ". Is this the right --context, and can the API server be reached from here?"
    return f"{error}{advice}"


def _record(wishes: Wishes, for_ns: int | None) -> Recorded:
    """Record until the time is over or somebody ends it, and show how far it has come."""
    from replay.record.session import record_live  # noqa: PLC0415 - needs the extra

    console = Console(stderr=True)
    shown = Live(Text("asking the API server"), console=console, transient=True)
    began = time.monotonic()
    with Endings() as endings, shown if console.is_terminal else contextlib.nullcontext():

        def go_on(state: State) -> bool:
            seconds = time.monotonic() - began
            if console.is_terminal:
                shown.update(Text(line(seconds, state)))
            left_s = _PERIOD_S if for_ns is None else min(_PERIOD_S, for_ns / 1e9 - seconds)
            if left_s <= 0 or endings.asked:
                return False
            time.sleep(left_s)
            return not endings.asked

        return record_live(wishes, go_on)


def line(seconds: float, state: State) -> str:
    """Return the line that tells how far a recording has come."""
    parts = [
        f"{simulated(int(seconds) * 10**9)} recorded",
        f"{state.listed} of {len(state.told)} kinds listed",
        f"{state.objects:,} objects",
        f"{state.events:,} events",
        f"{state.samples:,} samples of usage",
    ]
    problems = [*state.problems, state.usage_problem]
    return " · ".join([*parts, *filter(None, problems), "Ctrl-C ends"])


def _tell(recorded: Recorded) -> None:
    """Say what was recorded, and what was not."""
    state, version = recorded.state, recorded.version or "of an unknown version"
    seconds = simulated(round(recorded.seconds * 10**9))
    click.echo(f"recorded  {seconds} of {recorded.server} ({version})", err=True)
    for name, told in state.told.items():
        if told.is_listed and (told.first or told.events):
            click.echo(
                f"          {name}: {told.first:,} at first, {told.events:,} events", err=True
            )
    if recorded.usage:
        click.echo(f"usage     {recorded.usage}, samples: {state.samples:,}", err=True)
    else:
        why = state.usage_problem or recorded.usage_why
        text = f"usage     not recorded ({why}): in a replay no kubelet evicts anybody"
        click.echo(text, err=True)
    for note in recorded.notes:
        click.echo(f"note      {note}", err=True)


def _write(output: Path, folder: Path) -> None:
    """Make the trace of a folder's frames; where that does not end well, the frames stay."""
    from replay.record.frames import Folder  # noqa: PLC0415 - loaded when needed
    from replay.record.making import trace_of  # noqa: PLC0415 - loaded when needed

    again = f"what was received is in {folder}; reprieve record --from {folder} -o {output}"
    try:
        with refusing_traces():
            write_trace(output, trace_of(Folder(folder)))
    except RecordError as error:
        raise ExitError(REFUSED, str(error)) from error
    except ExitError as error:
        raise ExitError(error.code, f"{error}\n{again}") from error
    except KeyboardInterrupt as error:
        raise ExitError(INTERRUPTED, f"no trace was written; {again}") from error
