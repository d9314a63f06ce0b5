"""What a scheduler_perf test case does, as records of a trace."""
