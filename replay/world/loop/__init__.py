"""The replay's loop: instants and rounds, their inputs and their outcomes."""
