"""Changes a trace and its configuration on their way to a replay, for what-if questions."""
