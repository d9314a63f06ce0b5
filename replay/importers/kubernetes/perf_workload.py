"""The selected workload of a performance-config file, and its operations.

Source: kubernetes v1.36 test/integration/scheduler_perf, scheduler_perf.go (testCase, Workload,
params, unrollWorkloadTemplate) and operations.go (patchParams, resolveTemplateParams).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from replay import bounds
from replay.errors import TraceError
from replay.kube.changes import Raw, part
from services.kube.time import parse_duration_ns


class Workload:
    """A workload of a test case; `where` names it in error messages.

    `params` override the workload's own parameters.
    """

    def __init__(self, where: str, case: Raw, workload: Raw, params: Raw) -> None:
        self.where = where
        self.case = case
        self.raw = workload
        self._overrides = dict(params)
        defaults = {str(name): value for name, value in part(workload, "params").items()}
        self._params = {**defaults, **params}
        self._used: set[str] = set()

    def operations(self) -> Iterator[Operation]:
        """Yield the operations with upstream's numbers; createPodSets becomes its createPods."""
        index, template = 0, _list(self.case, "workloadTemplate")
        if not template:
            raise TraceError(self.where, "workloadTemplate: expected a list of operations")
        for position, raw in enumerate(template):
            operation = Operation(self, f"{self.where}, op {position}", raw)
            if operation.code != "createPodSets":
                yield operation.numbered(index)
                index += 1
                continue
            prefix, count = operation.text("namespacePrefix"), operation.count()
            inner = {**operation.mapping("createPodsOp"), "opcode": "createPods"}
            pods = Operation(self, operation.where, inner).count() if count else 0
            bounds.check_count(
                count * pods, operation.where, f"{operation.code}: the number of pods"
            )
            for number in range(count):
                variables = {**inner, "namespace": f"{prefix}-{number}"}
                yield Operation(self, operation.where, variables).numbered(index)
                index += 1

    def param(self, where: str, name: str) -> object:
        """Return a parameter's value. Raises TraceError if it has none."""
        self._used.add(name)
        if name not in self._params:
            names = ", ".join(sorted(self._params)) or "none"
            problem = f"the parameter {name} has no value (parameters with a value: {names})"
            raise TraceError(where, f"{problem}; give --param {name}=...")
        return self._params[name]

    def unused(self) -> Iterator[str]:
        """Yield the workload's own parameters that no operation reads.

        Raises TraceError for one that the user gave: it would have no effect.
        """
        for name in sorted(self._params):
            if name in self._used:
                continue
            if name in self._overrides:
                names = ", ".join(sorted(self._used)) or "none"
                problem = f"--param {name}: no operation reads it"
                raise TraceError(self.where, f"{problem}; operations read: {names}")
            yield name


class Operation:
    """One operation; the names of its fields are not case-sensitive, as upstream's."""

    def __init__(self, workload: Workload, where: str, raw: object) -> None:
        if not isinstance(raw, dict) or not isinstance(raw.get("opcode"), str):
            raise TraceError(where, "is not an operation: expected a mapping with an opcode")
        self.where = where
        self.index = 0
        self.code: str = raw["opcode"]
        self._workload = workload
        self._fields = {str(name).lower(): value for name, value in raw.items()}

    def numbered(self, index: int) -> Operation:
        """Set the operation's number, which names the namespace of pods without one."""
        self.index = index
        return self

    def count(self, default: int | None = None) -> int:
        """Return the value of `countParam` or `count`. Raises TraceError, also for too many."""
        value = self._value("count", "countparam")
        if value is None:
            value = 0 if default is None else default
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 <= value < math.inf
        ):
            raise TraceError(self.where, f"{self.code}: the count {value!r} is not a number >= 0")
        bounds.check_count(int(value), self.where, f"{self.code}: the count")
        return int(value)

    def number(self, name: str) -> int:
        """Return a number, 0 if it is absent."""
        value = self._fields.get(name.lower())
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise TraceError(self.where, f"{self.code}: {name}: {value!r} is not a number >= 0")
        return value

    def text(self, name: str) -> str:
        """Return a string, "" if it is absent."""
        value = self._fields.get(name.lower())
        return value if isinstance(value, str) else ""

    def texts(self, name: str) -> list[str]:
        """Return a list of strings, [] if it is absent."""
        value = self._fields.get(name.lower())
        return [str(item) for item in value] if isinstance(value, list) else []

    def mapping(self, name: str) -> Raw:
        """Return a mapping; an empty one where it is absent."""
        return part(self._fields, name.lower())

    def flag(self, name: str) -> bool:
        """Return a flag, or the value of its parameter; False if both are absent."""
        return self._value(name.lower(), f"{name}Param".lower()) is True

    def duration_ns(self) -> int:
        """Return `duration` or `durationParam`, ns. Raises TraceError if it is not one."""
        value = self._value("duration", "durationparam")
        try:
            duration_ns = parse_duration_ns(str(value or ""))
        except ValueError as error:  # a DurationError, or a number with thousands of digits
            raise TraceError(self.where, f"{self.code}: {error}") from error
        if duration_ns < 0:
            raise TraceError(self.where, f"{self.code}: duration: {value!r} is below 0")
        return duration_ns

    def template_values(self, index: int, count: int) -> dict[str, object]:
        """Return the values that an object template's actions read for one of `count` objects."""
        values: dict[str, object] = {}
        for name, value in self.mapping("templateParams").items():
            values[name] = self._resolved(value)
        return {**values, "Index": index, "Count": count}

    def _value(self, name: str, param_name: str) -> object:
        param = self._fields.get(param_name)
        if param:
            if not str(param).startswith("$"):
                raise TraceError(self.where, f"{param_name}: {param!r} does not begin with $")
            return self._resolved(param)
        return self._fields.get(name)

    def _resolved(self, value: object) -> object:
        if isinstance(value, str) and value.startswith("$"):
            return self._workload.param(self.where, value[1:])
        return value


def selected_workload(path: Path, text: str, selection: str, params: Raw) -> Workload:
    """Return the workload of `selection`: TESTCASE/WORKLOAD, or TESTCASE with its params.

    "" is the only workload of the file. Raises TraceError, which lists the names.
    """
    cases = _cases(path, text)
    names = [f"{case}/{name}" for case, raw in cases.items() for name in _workloads(raw)]
    case_name, _, name = (selection or (names[0] if len(names) == 1 else "")).partition("/")
    case = cases.get(case_name)
    if case is None or (name and name not in _workloads(case)) or not (name or params):
        listed = ", ".join(names)
        problem = f"no workload {selection!r}" if selection else "has several workloads"
        example = f"choose one with --workload: {listed}"
        if case is not None and not name:
            example = f"{selection} needs parameters (--param), or a workload: {listed}"
        raise TraceError(str(path), f"{problem}; {example}")
    workload = _workloads(case).get(name, {})
    return Workload(f"{path}, {selection or names[0]}", case, workload, params)


def _cases(path: Path, text: str) -> dict[str, Raw]:
    try:
        read = bounds.yaml_value(text, str(path))
    except yaml.YAMLError as error:
        raise TraceError(str(path), f"is not YAML: {error}") from error
    cases = read if isinstance(read, list) else []
    result: dict[str, Raw] = {
        str(case.get("name")): case for case in cases if isinstance(case, dict)
    }
    if not result or len(result) != len(cases):
        raise TraceError(str(path), "is not a list of test cases with different names")
    return result


def _workloads(case: Raw) -> dict[str, Raw]:
    return {
        str(workload.get("name")): workload
        for workload in _list(case, "workloads")
        if isinstance(workload, dict)
    }


def _list(raw: Raw, name: str) -> Sequence[Any]:
    value = raw.get(name)
    return value if isinstance(value, list) else []
