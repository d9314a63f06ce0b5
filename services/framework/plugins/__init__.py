"""The in-tree plugins, one room each."""
