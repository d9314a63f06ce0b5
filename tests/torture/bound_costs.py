"""What a file at each default bound costs at most, in memory and time.

    python -m tests.torture.bound_costs --share 16

The costliest content that was found for each bound is made at 1/16 of the bound and read as
`reprieve validate` reads it, in a process of its own. Memory is what the process grows by.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

import click
import zstandard

from replay.bounds import Bounds
from replay.errors import TraceError
from replay.importers.registry import open_trace
from replay.trace.validate import validate

_DEFAULT = Bounds()
_OBJECT = '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "x": '
_EXPANDED_BYTES = 256 << 20


def _depth(path: Path, _share: int) -> None:
    """Write brackets within brackets, once in each of ten thousand objects."""
    levels = _DEFAULT.depth - 2
    path.write_text((_OBJECT + "[" * levels + "]" * levels + "}}\n") * 10_000)


def _line(path: Path, share: int) -> None:
    """Write empty mappings, in one line."""
    _mappings(path, _DEFAULT.line_bytes // share, "{},")


def _json_object(path: Path, share: int) -> None:
    """Write empty mappings, in one value of many lines."""
    _mappings(path, _DEFAULT.object_bytes // share, "{},\n")


def _mappings(path: Path, size: int, mapping: str) -> None:
    count = (size - len(_OBJECT) - 10) // len(mapping)
    path.write_text(f"{_OBJECT}[{mapping * (count - 1)}{{}}]}}}}\n")


def _yaml_object(path: Path, share: int) -> None:
    """Write a sequence of empty mappings, in one document."""
    head = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  x:\n"
    path.write_text(head + "  - {}\n" * ((_DEFAULT.object_bytes // share - len(head)) // 7))


def _aliases(path: Path, _share: int) -> None:
    """Write aliases that stand for as many nodes as are allowed."""
    inner = "[" + "1, " * (_DEFAULT.expansion - 10) + "1]"
    body = f"  x: &a {inner}\n  y: [{'*a, ' * 50_000}*a]\n"
    path.write_text(f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n{body}")


def _expansion(path: Path, share: int) -> None:
    """Write empty lines before an object, compressed."""
    plain = b"\n" * (_EXPANDED_BYTES // share)
    path.write_bytes(zstandard.compress(_OBJECT.encode() + b"1}}\n" + plain))


def _pods(path: Path, share: int) -> None:
    """Write an operation that creates pods."""
    path.write_text(
        "- name: T\n  workloadTemplate:\n"
        f"  - {{opcode: createPods, count: {_DEFAULT.pods_per_object // share}}}\n"
        "  workloads:\n  - {name: w}\n"
    )


_CASES: Mapping[str, tuple[str, Callable[[Path, int], None]]] = {
    "--max-depth": ("10,000 objects of 500 levels", _depth),
    "--max-line-bytes": ("empty mappings", _line),
    "--max-object-bytes, JSON": ("empty mappings", _json_object),
    "--max-object-bytes, YAML": ("empty mappings", _yaml_object),
    "--max-expansion, aliases": ("50,000 aliases of 1,000 nodes", _aliases),
    "--max-expansion, zstd": ("empty lines of 256 MiB", _expansion),
    "--max-pods-per-object": ("createPods of scheduler_perf", _pods),
}
_SCALED = frozenset(_CASES) - {"--max-depth", "--max-expansion, aliases"}


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _measure(path: Path, pipe: Connection) -> None:
    before, began_s, outcome = _peak_mib(), time.process_time(), "read"
    try:
        validate(open_trace([path]))
    except TraceError as error:
        outcome = f"refused: {error.problem[:100]}"
    except MemoryError:
        outcome = "out of memory"
    pipe.send((_peak_mib() - before, time.process_time() - began_s, outcome))


@click.command()
@click.option("--share", default=16, show_default=True, help="Measure 1/SHARE of each bound.")
def main(share: int) -> None:
    """Print a table of what reading costs at 1/SHARE of each default bound."""
    context = multiprocessing.get_context("spawn")
    click.echo("| bound | content | memory, MiB | CPU, s | outcome |\n|---|---|---|---|---|")
    for name, (content, write) in _CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "source"
            write(path, share)
            pipe, end = context.Pipe(duplex=False)
            process = context.Process(target=_measure, args=(path, end))
            process.start()
            end.close()
            try:
                mib, seconds, outcome = pipe.recv()
            except EOFError:
                mib, seconds, outcome = 0, 0.0, "the process ended"
            process.join()
            at = f"1/{share}" if name in _SCALED else "whole"
            click.echo(f"| {name} ({at}) | {content} | {mib:,} | {seconds:.1f} | {outcome} |")


if __name__ == "__main__":
    main()
