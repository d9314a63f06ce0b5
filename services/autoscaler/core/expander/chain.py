"""The chain of expanders: each chooses from what the one before it leaves, until one is left.

Of several that are left at the end, chance chooses upstream; here the caller does (`Choose`).

Source: kubernetes/autoscaler 1.36 expander/factory/expander_factory.go, Build; chain.go;
random/random.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.autoscaler.core.expander import least_nodes, least_waste, most_pods, price, priority
from services.autoscaler.core.expander.options import (
    Choose,
    ExpanderContext,
    ExpansionOption,
    Filter,
)
from services.autoscaler.core.options import OptionsError

RANDOM = "random"
_FILTERS: Mapping[str, Filter] = {
    "most-pods": most_pods.best,
    "least-waste": least_waste.best,
    "least-nodes": least_nodes.best,
    "price": price.best,
    "priority": priority.best,
}


class ExpanderChain:
    """The expanders that `names`, separated by commas, asks for. Raises OptionsError."""

    def __init__(self, names: str) -> None:
        self._filters: list[Filter] = []
        seen: list[str] = []
        for name in names.split(","):
            if name in seen:
                raise OptionsError(f"--expander: {name} is there twice")
            if RANDOM in seen:
                raise OptionsError(f"--expander: {name} never has a choice after {RANDOM}")
            if name != RANDOM:
                if name not in _FILTERS:
                    known = ", ".join([*_FILTERS, RANDOM])
                    raise OptionsError(f"--expander: {name!r} is not one of {known}")
                self._filters.append(_FILTERS[name])
            seen.append(name)

    def best(
        self, options: Sequence[ExpansionOption], context: ExpanderContext
    ) -> list[ExpansionOption]:
        """Return the options of which any may be chosen, none where no expander wants any."""
        best = list(options)
        for best_of in self._filters:
            best = best_of(best, context)
            if len(best) == 1:
                break
        return best

    def choose(
        self, options: Sequence[ExpansionOption], context: ExpanderContext, choose: Choose
    ) -> ExpansionOption | None:
        """Return the option to take, None where no expander wants any."""
        by_name = {option.group.name: option for option in self.best(options, context)}
        return by_name[choose(list(by_name))] if by_name else None
