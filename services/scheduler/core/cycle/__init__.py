"""One pod's attempt: the scheduling cycle, extenders, preemption, and the decision."""
