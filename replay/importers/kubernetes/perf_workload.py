"""Which workload of a performance-config file is meant, and what its operations ask for.

Source: kubernetes v1.36 test/integration/scheduler_perf, scheduler_perf.go (testCase, Workload,
params, unrollWorkloadTemplate) and operations.go (patchParams, resolveTemplateParams).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from replay.errors import TraceError
from replay.kube.changes import Raw, part

COUNT_MAX = 10_000_000
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}


class Workload:
    """A workload of a test case; `where` names it in refusals."""

    def __init__(self, where: str, case: Raw, workload: Raw, given: Raw) -> None:
        self.where = where
        self.case = case
        self.raw = workload
        self._given = dict(given)
        self._params = {**part(workload, "params"), **given}
        self._used: set[str] = set()

    def operations(self) -> Iterator[Operation]:
        """Yield the operations, those of pod sets one by one, numbered as upstream numbers them."""
        index, template = 0, _list(self.case, "workloadTemplate")
        if not template:
            raise TraceError(self.where, "workloadTemplate: a list of operations is wanted")
        for position, raw in enumerate(template):
            each = Operation(self, f"{self.where}, op {position}", raw)
            if each.code != "createPodSets":
                yield each.numbered(index)
                index += 1
                continue
            prefix, count = each.text("namespacePrefix"), each.count()
            for number in range(count):
                inner = {**each.mapping("createPodsOp"), "namespace": f"{prefix}-{number}"}
                inner["opcode"] = "createPods"
                yield Operation(self, each.where, inner).numbered(index)
                index += 1

    def param(self, where: str, name: str) -> object:
        """Return a parameter's value. Raises TraceError where it has none."""
        self._used.add(name)
        if name not in self._params:
            known = ", ".join(sorted(self._params)) or "none"
            problem = f"the parameter {name} has no value (known: {known}); give --param {name}=..."
            raise TraceError(where, problem)
        return self._params[name]

    def unused(self) -> Iterator[str]:
        """Yield the workload's own parameters that no operation reads.

        Raises TraceError where one was given for this import: it would change nothing.
        """
        for name in sorted(self._params):
            if name in self._used:
                continue
            if name in self._given:
                read = ", ".join(sorted(self._used)) or "none"
                problem = f"no operation reads the parameter {name}; these are read: {read}"
                raise TraceError(self.where, problem)
            yield name


class Operation:
    """One operation; names of fields are compared without regard to case, as upstream does."""

    def __init__(self, workload: Workload, where: str, raw: object) -> None:
        if not isinstance(raw, dict) or not isinstance(raw.get("opcode"), str):
            raise TraceError(where, "is no operation: a mapping with an opcode is wanted")
        self.where = where
        self.index = 0
        self.code: str = raw["opcode"]
        self._workload = workload
        self._fields = {str(name).lower(): value for name, value in raw.items()}

    def numbered(self, index: int) -> Operation:
        """Give the operation its number; pods without a namespace get theirs from it."""
        self.index = index
        return self

    def count(self, default: int | None = None) -> int:
        """Return `countParam`'s or `count`'s value. Raises TraceError for one out of bounds."""
        value = self._value("count", "countparam")
        if value is None:
            value = 0 if default is None else default
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 <= value <= COUNT_MAX
        ):
            problem = f"the count {value!r} is no number from 0 to {COUNT_MAX:,}"
            raise TraceError(self.where, f"{self.code}: {problem}")
        return int(value)

    def number(self, name: str) -> int:
        """Return a number, 0 where it is absent."""
        value = self._fields.get(name.lower())
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise TraceError(self.where, f"{self.code}: {name}: {value!r} is no number from 0 on")
        return value

    def text(self, name: str) -> str:
        """Return a text, "" where it is absent."""
        value = self._fields.get(name.lower())
        return value if isinstance(value, str) else ""

    def texts(self, name: str) -> list[str]:
        """Return a list of texts."""
        value = self._fields.get(name.lower())
        return [str(each) for each in value] if isinstance(value, list) else []

    def mapping(self, name: str) -> Raw:
        """Return a mapping; an empty one where it is absent."""
        return part(self._fields, name.lower())

    def flag(self, name: str) -> bool:
        """Return a flag, or what the parameter that stands for it says."""
        return self._value(name.lower(), f"{name}Param".lower()) is True

    def duration_ns(self) -> int:
        """Return `duration`, ns. Raises TraceError where it is none."""
        value = self._value("duration", "durationparam")
        text = str(value or "")
        end, total = 0, 0.0
        for match in _DURATION.finditer(text):
            if match.start() != end:
                break
            total, end = total + float(match[1]) * _UNITS_NS[match[2]], match.end()
        if not text or end != len(text):
            raise TraceError(self.where, f"{self.code}: duration: {value!r} is no length of time")
        return round(total)

    def template_values(self, index: int, count: int) -> dict[str, object]:
        """Return what the actions of an object template read for one of `count` objects."""
        values: dict[str, object] = {}
        for name, value in self.mapping("templateParams").items():
            values[name] = self._resolved(value)
        return {**values, "Index": index, "Count": count}

    def _value(self, name: str, param_name: str) -> object:
        param = self._fields.get(param_name)
        if param:
            if not str(param).startswith("$"):
                raise TraceError(self.where, f"{param_name}: {param!r}: begins with $")
            return self._resolved(param)
        return self._fields.get(name)

    def _resolved(self, value: object) -> object:
        if isinstance(value, str) and value.startswith("$"):
            return self._workload.param(self.where, value[1:])
        return value


def chosen_workload(path: Path, text: str, wanted: str, params: Raw) -> Workload:
    """Return the workload that `wanted` names: TESTCASE/WORKLOAD, or TESTCASE with its params.

    Without a name, the only workload of the file. Raises TraceError, which lists the names.
    """
    cases = _cases(path, text)
    names = [f"{case}/{name}" for case, raw in cases.items() for name in _workloads(raw)]
    case_name, _, name = (wanted or (names[0] if len(names) == 1 else "")).partition("/")
    case = cases.get(case_name)
    if case is None or (name and name not in _workloads(case)) or not (name or params):
        listed = ", ".join(names)
        problem = f"no workload {wanted!r}" if wanted else "holds several workloads"
        example = f"choose one with --workload: {listed}"
        if case is not None and not name:
            example = f"{wanted} needs parameters (--param), or a workload: {listed}"
        raise TraceError(str(path), f"{problem}; {example}")
    workload = _workloads(case).get(name, {})
    return Workload(f"{path}, {wanted or names[0]}", case, workload, params)


def _cases(path: Path, text: str) -> dict[str, Raw]:
    try:
        read = yaml.load(text, yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise TraceError(str(path), f"is no YAML: {error}") from error
    cases = read if isinstance(read, list) else []
    result: dict[str, Raw] = {
        str(each.get("name")): each for each in cases if isinstance(each, dict)
    }
    if not result or len(result) != len(cases):
        raise TraceError(str(path), "is no list of test cases, each with a name of its own")
    return result


def _workloads(case: Raw) -> dict[str, Raw]:
    known = (each for each in _list(case, "workloads") if isinstance(each, dict))
    return {str(each.get("name")): each for each in known}


def _list(raw: Raw, name: str) -> Sequence[Any]:
    value = raw.get(name)
    return value if isinstance(value, list) else []
