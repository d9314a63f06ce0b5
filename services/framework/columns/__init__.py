"""The snapshot's numbers: int64 columns with one row per node, and the compiled loops over them."""
