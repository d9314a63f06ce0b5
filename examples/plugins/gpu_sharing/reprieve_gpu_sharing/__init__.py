"""GPU sharing: pods that take a part of one GPU, or several whole ones."""
