"""What the scheduler sends its queue, and what it knows of it."""
