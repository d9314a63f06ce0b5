"""CEL expressions that select devices, compiled and evaluated.

`device` is declared by its parts (`device.driver`, `device.attributes`, ...), which the checker
resolves as qualified names: an unknown part is a compile error, as with upstream's typed object. A
domain that a device has nothing of is an empty map where it is looked up, but is absent for `in`
and for iteration: in the checked expression, the maps that are indexed are replaced by variables
that have an empty map for every domain which the expression names.

A quantity and a version are messages that hold canonical texts, so that equal ones compare equal.
Functions of Kubernetes' libraries that are not declared here are compile errors with their names:
those of lists, URLs, IPs, sets, formats and regular expressions, and costs are not limited.

Source: kubernetes v1.36 dynamic-resource-allocation/cel/compile.go, CompileCELExpression and
DeviceMatches; apiserver/pkg/cel/library, quantity.go and semverlib.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory

from services.cel.checked_expressions import checked_expression, parts
from services.kube import quantity, semver
from services.kube.devices import Device, SelectorError, Version
from services.kube.quantity import Format, Quantity, QuantityError
from services.kube.semver import Semver, SemverError

INT64 = range(-(2**63), 2**63)
_DRIVER, _ATTRIBUTES, _CAPACITY = "device.driver", "device.attributes", "device.capacity"
_MULTIPLE = "device.allowMultipleAllocations"
_INDEXED = {_ATTRIBUTES: "device_attributes_indexed", _CAPACITY: "device_capacity_indexed"}
"""The variables that stand for the maps where these are indexed."""
_INDEXING = frozenset({"_[_]", "_[?_]", "_?._"})
_EXPRESSIONS_MAX = 1024


class CompiledExpression:
    """An expression that is ready to be evaluated."""

    def __init__(self, expression: cel.Expression, domains: frozenset[str]) -> None:
        self._expression = expression
        self._domains = domains

    def evaluate(self, device: Device, driver: str) -> bool:
        """Return whether a device of `driver` meets it. Raises SelectorError."""
        attributes: dict[str, dict[str, Any]] = {}
        for name, value in device.attributes.items():
            domain, key = _qualified(name, driver)
            attributes.setdefault(domain, {})[key] = _attribute(name, value)
        capacity: dict[str, dict[str, Any]] = {}
        for name, held in device.capacity.items():
            domain, key = _qualified(name, driver)
            capacity.setdefault(domain, {})[key] = _to_quantity(quantity.parse(held.value))
        domains: dict[str, dict[str, Any]] = {domain: {} for domain in {*self._domains, driver}}
        data = {
            _DRIVER: driver,
            _MULTIPLE: device.allows_multiple,
            _ATTRIBUTES: attributes,
            _CAPACITY: capacity,
            _INDEXED[_ATTRIBUTES]: {**domains, **attributes},
            _INDEXED[_CAPACITY]: {**domains, **capacity},
        }
        result = self._expression.eval(data=data)
        if result.type() == cel.Type.ERROR:
            raise SelectorError(f"CEL runtime error: {_as_upstream(str(result.value()))}")
        if result.type() != cel.Type.BOOL:
            raise SelectorError(
                f"CEL runtime error: CEL result of type {result.type().name().lower()} could not "
                "be converted to bool"
            )
        return bool(result.value())


@lru_cache(maxsize=_EXPRESSIONS_MAX)
def compiled_expression(expression: str, *, multiple: bool) -> CompiledExpression | SelectorError:
    """Return the expression, or why it cannot be compiled.

    multiple: whether `device.allowMultipleAllocations` is declared (DRAConsumableCapacity).
    """
    env = _environment(multiple)
    try:
        compiled = env.compile(expression)
    except RuntimeError as error:
        text = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        return SelectorError(f"CEL compile error: compilation failed: {text}")
    kind = compiled.return_type()
    if kind not in (cel.Type.BOOL, cel.Type.DYN):
        return SelectorError(
            "CEL compile error: must evaluate to bool or the unknown type, not "
            f"{kind.name().lower()}"
        )
    packed = any_pb2.Any.FromString(compiled.serialize())
    checked = checked_expression().FromString(packed.value)
    references = {entry.key: entry.value for entry in checked.references}
    domains = frozenset(_index_domains(references, checked.expr))
    packed.value = checked.SerializeToString()
    return CompiledExpression(env.deserialize(packed.SerializeToString()), domains)


_NOT_A_QUANTITY = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_STATUS = re.compile(r"^[A-Z_]+: ")
_TEXTS = (
    (re.compile(r'Key not found in map : "?(.*?)"?'), r"no such key: \1"),
    (re.compile(r"divide by zero"), "division by zero"),
    (re.compile(r"Index error: index=(-?\d+) size=\d+"), r"index out of bounds: \1"),
    (re.compile(r"No matching overloads found : .*"), "no such overload"),
    (re.compile(r"'.*' is not a quantity: .*"), _NOT_A_QUANTITY),
)
"""What the library says, and what cel-go and Kubernetes' functions say."""


def _as_upstream(text: str) -> str:
    """Return the text of a runtime error as upstream's library words it."""
    text = _STATUS.sub("", text, count=1)
    for pattern, upstreams in _TEXTS:
        if match := pattern.fullmatch(text):
            return match.expand(upstreams) if match.groups() else upstreams
    return text


def _index_domains(references: Mapping[int, Any], expr: Any) -> Iterator[str]:
    """Replace the maps that `expr` indexes, in place; yield the constants that index them."""
    if expr.HasField("select") and _replace(references, expr.select.operand):
        yield expr.select.field
    if expr.call.function in _INDEXING and _replace(references, expr.call.args[0]):
        yield expr.call.args[1].constant.string_value
    for part in parts(expr):
        yield from _index_domains(references, part)


def _replace(references: Mapping[int, Any], operand: Any) -> bool:
    reference = references.get(operand.id)
    if reference is None or reference.name not in _INDEXED:
        return False
    operand.ident.name = reference.name = _INDEXED[reference.name]
    return True


def _qualified(name: str, driver: str) -> tuple[str, str]:
    """Split a name into its domain, the driver by default, and the rest."""
    domain, slash, key = name.partition("/")
    return (domain, key) if slash else (driver, name)


def _attribute(name: str, value: object) -> Any:
    if value is None:
        raise SelectorError(f"CEL runtime error: attribute {name}: unsupported attribute value")
    if isinstance(value, Version):
        try:
            return _to_semver(semver.parse(value.text))
        except SemverError as error:
            text = f"CEL runtime error: attribute {name}: parse semantic version: {error}"
            raise SelectorError(text) from None
    return value


@cache
def _messages() -> tuple[descriptor_pool.DescriptorPool, type[Any], type[Any]]:
    """Return the messages of quantities and versions, which users cannot name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="kubernetes.proto", package="kubernetes", syntax="proto3"
    )
    for name in ("Quantity", "Semver"):
        field = file.message_type.add(name=name).field.add(name="text", number=1)
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
        field.label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kinds = (pool.FindMessageTypeByName(f"kubernetes.{name}") for name in ("Quantity", "Semver"))
    amount, version = (message_factory.GetMessageClass(kind) for kind in kinds)
    return pool, amount, version


def _to_quantity(amount: Quantity) -> Any:
    return _messages()[1](text=str(amount.nano))


def _from_quantity(message: Any) -> int:
    return int(message.text or "0")


def _to_semver(version: Semver) -> Any:
    return _messages()[2](text=str(version))


def _from_semver(message: Any) -> Semver:
    return semver.parse(message.text)


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _quantity(text: str) -> Any:
    return _to_quantity(quantity.parse(text))


def _is_quantity(text: str) -> bool:
    try:
        quantity.parse(text)
    except QuantityError:
        return False
    return True


def _whole(message: Any) -> int | None:
    """Return a quantity as an integer of 64 bits, None for one that is not."""
    number, rest = divmod(_from_quantity(message), quantity.NANO)
    return number if not rest and number in INT64 else None


def _as_integer(message: Any) -> int:
    number = _whole(message)
    if number is None:
        raise ValueError("cannot convert value to integer")
    return number


def _sum(one: Any, other: Any, factor: int) -> Any:
    added = other * quantity.NANO if isinstance(other, int) else _from_quantity(other)
    return _to_quantity(Quantity(_from_quantity(one) + factor * added, Format.DECIMAL_SI))


def _semver(text: str, normalize: bool = False) -> Any:
    return _to_semver(semver.parse_normalized(text) if normalize else semver.parse(text))


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        _semver(text, normalize)
    except SemverError:
        return False
    return True


def _compare(one: Any, other: Any) -> int:
    """Return -1, 0 or 1; raises TypeError for a quantity and a version."""
    kind = type(one)
    if type(other) is not kind:
        raise TypeError("no such overload")
    if kind is _messages()[1]:
        return _sign(_from_quantity(one) - _from_quantity(other))
    first, second = _from_semver(one).order, _from_semver(other).order
    return (first > second) - (first < second)


@cache
def _environment(multiple: bool) -> cel.Env:
    kind = cel.Type
    amount, version = kind("kubernetes.Quantity"), kind("kubernetes.Semver")
    attributes = kind.Map(kind.STRING, kind.Map(kind.STRING, kind.DYN))
    capacity = kind.Map(kind.STRING, kind.Map(kind.STRING, amount))
    variables = {
        _DRIVER: kind.STRING,
        _ATTRIBUTES: attributes,
        _CAPACITY: capacity,
        _INDEXED[_ATTRIBUTES]: attributes,
        _INDEXED[_CAPACITY]: capacity,
    }
    if multiple:
        variables[_MULTIPLE] = kind.BOOL
    functions: dict[str, list[cel.Overload]] = {}

    def declare(
        name: str, result: cel.Type, parameters: list[cel.Type], impl: Callable[..., Any] | None
    ) -> None:
        is_member = parameters[0] in (amount, version) and name != "sign"
        overloads = functions.setdefault(name, [])
        overload = f"{name}_{'_'.join(parameter.name() for parameter in parameters)}"
        how = {} if impl is None else {"impl": impl}
        overloads.append(cel.Overload(overload, result, parameters, is_member=is_member, **how))

    comparisons = (
        ("compareTo", kind.INT, _compare),
        ("isLessThan", kind.BOOL, lambda a, b: _compare(a, b) < 0),
        ("isGreaterThan", kind.BOOL, lambda a, b: _compare(a, b) > 0),
    )
    for name, result, compare in comparisons:
        # The runtime has one function for all pairs of messages; the checker knows the pairs.
        declare(name, result, [amount, amount], compare)
        declare(name, result, [version, version], None)
    declare("quantity", amount, [kind.STRING], _quantity)
    declare("isQuantity", kind.BOOL, [kind.STRING], _is_quantity)
    declare("sign", kind.INT, [amount], lambda a: _sign(_from_quantity(a)))
    declare("isInteger", kind.BOOL, [amount], lambda a: _whole(a) is not None)
    declare("asInteger", kind.INT, [amount], _as_integer)
    declare(
        "asApproximateFloat", kind.DOUBLE, [amount], lambda a: _from_quantity(a) / quantity.NANO
    )
    for name, factor in (("add", 1), ("sub", -1)):
        for other in (amount, kind.INT):
            declare(name, amount, [amount, other], lambda a, b, by=factor: _sum(a, b, by))
    for parameters in ([kind.STRING], [kind.STRING, kind.BOOL]):
        declare("semver", version, parameters, _semver)
        declare("isSemver", kind.BOOL, parameters, _is_semver)
    for part in ("major", "minor", "patch"):
        declare(part, kind.INT, [version], lambda a, by=part: getattr(_from_semver(a), by))
    return cel.NewEnv(
        _messages()[0],
        variables=variables,
        extensions=[
            ext_optional.ExtOptional(),
            ext_bindings.ExtBindings(),
            ext_strings.ExtStrings(),
        ],
        functions=[cel.FunctionDecl(name, overloads) for name, overloads in functions.items()],
    )
