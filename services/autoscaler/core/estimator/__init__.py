"""How many nodes of a group the pending pods need."""
