"""The replay tool: plays the rest of the cluster from a recorded trace under virtual time."""
