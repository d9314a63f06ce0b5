"""The inputs of two runs: which of them differ, by name, with their values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import unified_diff
from pathlib import PurePath

from replay.results.run.manifest import Manifest


def override_differences(a: Manifest, b: Manifest, names: Collection[str] = ()) -> Iterator[str]:
    """Yield a sentence for each override that one run alone has; of `names`, () for all."""
    mine, theirs = (manifest.configuration.get("overrides", {}) for manifest in (a, b))
    for name in dict.fromkeys([*mine, *theirs]):
        if names and name not in names:
            continue
        texts = [_texts(overrides.get(name, ())) for overrides in (mine, theirs)]
        for run, texts_here, others in (("A", *texts), ("B", *texts[::-1])):
            for text in texts_here:
                if text not in others:
                    quoted = f"'{text}'" if " " in text else text
                    yield f"Only {run} has --{name.replace('_', '-')} {quoted}."


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else [str(value)]


def input_changes(a: Manifest, b: Manifest) -> list[tuple[str, str, str]]:
    """Return what differs between two runs' inputs: its name, and its values in A and B.

    Of a configuration file, the lines that only one of them has.
    """
    changes = []
    inputs_a, inputs_b = _inputs(a), _inputs(b)
    for name in dict.fromkeys([*inputs_a, *inputs_b]):
        one, other = inputs_a.get(name, ""), inputs_b.get(name, "")
        if one != other:
            changes.append((name, *_different_lines(one, other)))
    return changes


def _inputs(manifest: Manifest) -> dict[str, str]:
    traces = [f"{PurePath(trace.path).name} ({trace.sha256[:12]})" for trace in manifest.traces]
    inputs = {
        "trace": "\n".join(traces),
        "rules": manifest.rules,
        "seed": str(manifest.seed),
        "version": manifest.version,
    }
    for name, value in (*manifest.configuration.items(), *manifest.models.items()):
        if isinstance(value, Mapping):
            inputs |= {f"{name} {key}": _text(item) for key, item in value.items()}
        else:
            inputs[name] = _text(value)
    return inputs


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return "\n".join(map(str, value))
    return "" if value is None else str(value)


def _different_lines(one: str, other: str) -> tuple[str, str]:
    if "\n" not in one + other:
        return one, other
    lines = list(unified_diff(one.splitlines(), other.splitlines(), n=0, lineterm=""))[2:]
    sides = ([line[1:] for line in lines if line.startswith(mark)] for mark in "-+")
    a, b = ("\n".join(side) for side in sides)
    return a, b
