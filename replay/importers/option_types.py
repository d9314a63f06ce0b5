"""The types of the importers' options: how each reads the text of a command line."""

from __future__ import annotations

import re
from collections.abc import Mapping

import yaml

from replay.bounds import yaml_value
from replay.kube.changes import time_ns
from replay.options import ParsedParam
from services.kube import quantity
from services.kube.pod import HIGHEST_USER_PRIORITY

_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9./-]*[a-z0-9])?")
_INTEGER = re.compile(r"-?\d{1,10}")
_PRIORITY_MIN = -(2**31)


def _setting(text: str) -> tuple[str, object]:
    """Return the name and the value of a workload's parameter, read as YAML reads it."""
    name, sign, value = text.partition("=")
    try:
        read = yaml_value(value, "--param")
    except yaml.YAMLError:
        read = None
    if not name or not sign or not isinstance(read, int | float | str | bool):
        raise ValueError(f"{text!r} is not a parameter; write initNodes=5000")
    return name, read


def _amounts(text: str) -> Mapping[str, str]:
    result = {}
    for pair in filter(None, text.split(",")):
        resource, _, amount = pair.strip().partition("=")
        if _value(amount) is None:
            raise ValueError(f"{pair!r} is not RESOURCE=QUANTITY; write cpu=96,memory=768Gi")
        if not _RESOURCE.fullmatch(resource):
            raise ValueError(f"{resource!r} is not the name of a resource; write cpu=96")
        result[resource] = amount
    return result


def _bytes(text: str) -> int:
    number = _value(text)
    if not number:
        raise ValueError(f"{text!r} is not a size; write 256Gi")
    return number


def _value(text: str) -> int | None:
    """Return a quantity's value; None for a negative quantity or any other text."""
    try:
        number = quantity.value(text)
    except quantity.QuantityError:
        return None
    return number if number >= 0 else None


def _qos_priority(text: str) -> tuple[str, int]:
    qos, _, number = text.partition("=")
    if not qos or not _INTEGER.fullmatch(number):
        raise ValueError(f"{text!r} is not QOS=PRIORITY; write LS=1000")
    priority = int(number)
    if not _PRIORITY_MIN <= priority <= HIGHEST_USER_PRIORITY:
        raise ValueError(f"{text!r}: a priority is at most {HIGHEST_USER_PRIORITY:,}")
    return qos, priority


def _time_ns(text: str) -> int:
    at_ns = time_ns(text)
    if at_ns is None:
        raise ValueError(f"{text!r} is not a time; write 2026-01-31T12:00:00Z")
    return at_ns


AMOUNTS = ParsedParam("RESOURCE=QUANTITY,...", _amounts)
"""Quantities by resource, such as "cpu=96,memory=768Gi"."""
BYTES = ParsedParam("QUANTITY", _bytes)
"""A size such as "256Gi"; its value is in bytes."""
PARAMETER = ParsedParam("NAME=VALUE", _setting)
"""A parameter of a workload, such as "initNodes=5000"; its value is (name, value)."""
QOS_PRIORITY = ParsedParam("QOS=PRIORITY", _qos_priority)
"""A priority for a qos of OpenB, such as "LS=1000"; its value is (qos, priority)."""
TIME = ParsedParam("TIME", _time_ns)
"""A time such as 2026-01-31T12:00:00Z; its value is in ns since 1970."""
