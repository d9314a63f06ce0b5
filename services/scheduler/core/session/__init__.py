"""The scheduler without its wires: a session's options, its rules, and all that it remembers."""
