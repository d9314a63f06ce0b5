"""Writing a trace where a user asked for it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from replay.cli.errors import refusing_traces
from replay.trace.writer import write
from reprieve.trace.v1alpha1.trace_pb2 import Record


def write_trace(output: Path, records: Iterable[Record]) -> None:
    """Write a whole trace or leave `output` as it was; say how many records it has.

    Raises ExitError where it cannot be written.
    """
    partial = output.with_name(f".partial.{output.name}")
    with refusing_traces():
        try:
            count = write(partial, records)
            partial.replace(output)
        finally:
            partial.unlink(missing_ok=True)
    click.echo(f"{output}: {count} records", err=True)
