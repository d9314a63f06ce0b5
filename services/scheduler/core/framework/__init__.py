"""A profile's plugins at work, and their verdicts by pod equivalence class."""
