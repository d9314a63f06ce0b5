"""The steps that the scheduler sends its queue, and its copy of the queue's state."""
