"""How the queue's state machines are run: under a seed, which a failure prints."""

from __future__ import annotations

import os
import secrets

from hypothesis import seed, settings
from hypothesis.stateful import RuleBasedStateMachine, get_state_machine_test

SEED_VARIABLE = "REPRIEVE_TEST_SEED"
STEPS = 60


def run(machine: type[RuleBasedStateMachine], *, examples: int) -> None:
    """Run `examples` sequences of up to STEPS steps; a failure prints the seed to reproduce it."""
    chosen = int(os.environ.get(SEED_VARIABLE) or secrets.randbelow(2**32))
    limits = settings(max_examples=examples, stateful_step_count=STEPS)
    try:
        seed(chosen)(get_state_machine_test(machine, settings=limits))()
    except Exception as error:
        error.add_note(f"Set {SEED_VARIABLE}={chosen} to repeat these steps.")
        raise
