"""The results of a replay: run directory, decision log, summary."""
