"""A run's cluster as kubectl shows it."""
