"""most-pods: the group on whose new nodes most pods find a place.

Source: kubernetes/autoscaler 1.36 expander/mostpods/mostpods.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.autoscaler.core.expander.options import ExpanderContext, ExpansionOption


def best(options: Sequence[ExpansionOption], context: ExpanderContext) -> list[ExpansionOption]:
    """Return the options with most pods."""
    del context
    most = max((len(option.pods) for option in options), default=0)
    return [option for option in options if len(option.pods) == most]
