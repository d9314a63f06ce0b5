"""Scale-down: which nodes are not needed, which of them may go now, and how they go."""
