"""The scheduler without its transport: a session's options, its rules, and all of its state."""
