"""NodeResourcesFit and NodeResourcesBalancedAllocation: room on a node, and scores by its use."""
