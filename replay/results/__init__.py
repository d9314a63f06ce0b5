"""What a replay leaves behind: run directory, decision log, summary."""
