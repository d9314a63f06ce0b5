"""Node groups for a replay: their file, what a trace says of them, and what it leaves to them."""
