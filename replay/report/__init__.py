"""The report of a run: one page that opens without a network, made of the run's tables."""
