"""The snapshot's numbers: int64 columns with one row a node, and the compiled loops over them."""
