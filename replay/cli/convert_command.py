"""`reprieve convert`: any trace to the native format."""

from __future__ import annotations

from pathlib import Path

import click

from replay.cli.traces import TraceArguments, trace_options
from replay.trace.writer import write


@click.command(name="convert")
@trace_options
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write: .ktr (protobuf in zstd frames) or .jsonl (one record a line).",
)
def command(trace: TraceArguments, output: Path) -> None:
    """Convert a trace of any format that Reprieve reads to its own.

    \b
    Examples:
      reprieve convert nodes.yaml pods.yaml -o cluster.ktr
      reprieve convert recording/ -o recording.jsonl
      reprieve convert cluster.ktr -o cluster.jsonl      # to read it
    """
    partial = output.with_name(f".{output.name}.partial{''.join(output.suffixes)}")
    try:
        count = write(partial, trace.records())
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    click.echo(f"{output}: {count} records", err=True)
