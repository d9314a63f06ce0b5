"""The cluster as the scheduler sees it: nodes as rows, their pods, and other objects."""
