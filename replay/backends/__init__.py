"""The services behind a replay: child processes, or addresses."""
