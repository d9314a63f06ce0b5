"""The report of a run: one HTML page, built from the run's tables, that needs no network."""
