"""The scheduler's pure core: attempts, and what its queue is sent."""
