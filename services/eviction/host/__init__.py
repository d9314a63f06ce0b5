"""The machine as a node: its statistics, its memory notifications, its processes."""
