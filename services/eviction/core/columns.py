"""The question "is any threshold met?" for many nodes at once.

A step changes nothing on a node whose state is at rest, where no watched threshold is met and
no pod exceeds a limit on local storage (`local_storage.may_be_evicted` tells who could). Over a
fleet the second test is one pass over columns; the manager answers for the few nodes that are
left, and `Manager.skip` notes the others' times.

Columns stand in the order of SIGNALS. Amounts are whole units: an amount with a fraction is
rounded up, which changes nothing, since what is available is whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.eviction.core.observations import Observation
from services.eviction.core.signals import Signal
from services.eviction.core.thresholds import Threshold

SIGNALS: tuple[Signal, ...] = tuple(Signal)
_INDEX = {signal: index for index, signal in enumerate(SIGNALS)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ObservationColumns:
    """Observations of many nodes.

    `available` and `capacity`: int64[nodes, signals]; `seen`: bool[nodes, signals], false where a
    signal was not observed.
    """

    available: npt.NDArray[np.int64]
    capacity: npt.NDArray[np.int64]
    seen: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ThresholdColumns:
    """The watched thresholds of nodes that are configured alike.

    `signal`: int64[thresholds], the column watched; `amount`: int64[thresholds], in units;
    `share`: float64[thresholds], of the capacity where it is above 0.
    """

    signal: npt.NDArray[np.int64]
    amount: npt.NDArray[np.int64]
    share: npt.NDArray[np.float64]

    def any_met(self, observed: ObservationColumns) -> npt.NDArray[np.bool_]:
        """Return bool[nodes]: whether some threshold is met, whatever its grace."""
        capacity = observed.capacity[:, self.signal]
        shares = (capacity.astype(np.float64) * self.share).astype(np.int64)
        needed = np.where(self.share > 0, shares, self.amount)
        met = observed.seen[:, self.signal] & (observed.available[:, self.signal] < needed)
        return np.any(met, axis=1, out=np.empty(len(met), dtype=np.bool_))


def threshold_columns(thresholds: Sequence[Threshold]) -> ThresholdColumns:
    """Return the columns of a manager's `watched` thresholds."""
    quantities = [each.value.quantity for each in thresholds]
    return ThresholdColumns(
        signal=np.array([_INDEX[each.signal] for each in thresholds], dtype=np.int64),
        amount=np.array(
            [0 if each is None else each.value() for each in quantities], dtype=np.int64
        ),
        share=np.array([each.value.percentage for each in thresholds], dtype=np.float64),
    )


def observation_columns(nodes: Sequence[Mapping[Signal, Observation]]) -> ObservationColumns:
    """Return the columns of each node's observations, in the order of `nodes`."""
    shape = (len(nodes), len(SIGNALS))
    available = np.zeros(shape, dtype=np.int64)
    capacity = np.zeros(shape, dtype=np.int64)
    seen = np.zeros(shape, dtype=np.bool_)
    for row, observations in enumerate(nodes):
        for signal, observed in observations.items():
            column = _INDEX[signal]
            available[row, column] = observed.available
            capacity[row, column] = observed.capacity
            seen[row, column] = True
    return ObservationColumns(available=available, capacity=capacity, seen=seen)
