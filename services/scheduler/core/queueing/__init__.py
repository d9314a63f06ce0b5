"""What the scheduler sends its queue, and what it keeps of the queue's state."""
