"""Compares what-if runs: their figures, checks of these, two runs, and grids of runs."""
