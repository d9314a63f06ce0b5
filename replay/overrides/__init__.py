"""What-if: a trace and its configuration, changed on their way to a replay."""
