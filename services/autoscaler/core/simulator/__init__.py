"""A copy of the cluster on which placements are simulated with the scheduler's filters."""
