"""The plugins of one profile at work, and their verdicts by pod equivalence class."""
