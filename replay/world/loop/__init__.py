"""The replay's loop: instants, rounds and windows, their inputs and their outcomes."""
