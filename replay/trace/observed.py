"""The kind of a decision or an observation, as logs and users name it."""

from __future__ import annotations

import re

from reprieve.trace.v1beta1.trace_pb2 import Observed

_NAMES = {
    field.name: re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", field.json_name)
    for field in Observed.DESCRIPTOR.oneofs_by_name["observed"].fields
}


def kind_in_logs(observed: Observed) -> str:
    """Return the kind's JSON name in snake case, "" for an unknown kind.

    It is the field's name in the contract except for "made", which the contract calls `created`.
    """
    return _NAMES.get(observed.WhichOneof("observed") or "", "")
