"""The parts of CEL's checked expressions that are read and changed, as messages.

No package that Reprieve requires has their generated code, so that their descriptors are made here.
Fields that are not listed are kept when a message is written again.

Source: cel-spec proto/cel/expr, checked.proto and syntax.proto.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "checked"
_FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "Checked": {"references": (2, "ReferenceEntry*"), "expr": (4, "Expr")},
    "ReferenceEntry": {"key": (1, "int64"), "value": (2, "Reference")},
    "Reference": {"name": (1, "string")},
    "Expr": {
        "id": (2, "int64"),
        "constant": (3, "Constant"),
        "ident": (4, "Ident"),
        "select": (5, "Select"),
        "call": (6, "Call"),
        "list": (7, "List"),
        "struct": (8, "Struct"),
        "fold": (9, "Fold"),
    },
    "Constant": {"string_value": (6, "string")},
    "Ident": {"name": (1, "string")},
    "Select": {"operand": (1, "Expr"), "field": (2, "string"), "test_only": (3, "bool")},
    "Call": {"target": (1, "Expr"), "function": (2, "string"), "args": (3, "Expr*")},
    "List": {"elements": (1, "Expr*")},
    "Struct": {"entries": (2, "StructEntry*")},
    "StructEntry": {"map_key": (3, "Expr"), "value": (4, "Expr")},
    "Fold": {
        "iter_range": (2, "Expr"),
        "accu_init": (4, "Expr"),
        "loop_condition": (5, "Expr"),
        "loop_step": (6, "Expr"),
        "result": (7, "Expr"),
    },
}
"""The messages: each field's number and type, with "*" for a repeated one."""

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {"int64": _Field.TYPE_INT64, "string": _Field.TYPE_STRING, "bool": _Field.TYPE_BOOL}


@cache
def checked_expression() -> type[Any]:
    """Return the class of a checked expression."""
    file = descriptor_pb2.FileDescriptorProto(
        name="checked.proto", package=_PACKAGE, syntax="proto3"
    )
    for message, fields in _FIELDS.items():
        described = file.message_type.add(name=message)
        for name, (number, described_type) in fields.items():
            kind = described_type.removesuffix("*")
            repeated = kind != described_type
            field = described.field.add(
                name=name,
                number=number,
                label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL,
            )
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type = _Field.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Checked"))


def parts(expr: Any) -> list[Any]:
    """Return the expressions that an expression is made of."""
    nested = [
        expr.select.operand if expr.HasField("select") else None,
        expr.call.target if expr.call.HasField("target") else None,
        *expr.call.args,
        *expr.list.elements,
    ]
    for entry in expr.struct.entries:
        nested += [entry.map_key if entry.HasField("map_key") else None, entry.value]
    if expr.HasField("fold"):
        nested += [getattr(expr.fold, name) for name in _FIELDS["Fold"]]
    return [part for part in nested if part is not None]
