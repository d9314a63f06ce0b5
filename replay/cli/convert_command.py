"""`reprieve convert`: any trace to the native format."""

from __future__ import annotations

from pathlib import Path

import click

from replay.cli.parameters import TRACE_FILE
from replay.cli.traces import TraceArguments, trace_options, write_trace


@click.command(name="convert")
@trace_options
@click.option(
    "-o",
    "--output",
    required=True,
    type=TRACE_FILE,
    help="Where to write: .ktr (protobuf in zstd frames) or .jsonl (one record a line).",
)
def command(trace: TraceArguments, output: Path) -> None:
    """Convert a trace of any format that Reprieve reads to its own.

    \b
    Examples:
      reprieve convert nodes.yaml pods.yaml -o cluster.ktr
      reprieve convert recording/ -o recording.jsonl
      reprieve convert cluster.ktr -o cluster.jsonl      # to read it
      reprieve convert task_events/ machine_events/ -o google.ktr
      reprieve convert packing.sqlite --machine 16 --made-nodes 500 -o azure.ktr
    """
    write_trace(output, trace.records())
