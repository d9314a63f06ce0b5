"""What-if: figures of runs, checks of them, two runs compared, and grids of runs."""
