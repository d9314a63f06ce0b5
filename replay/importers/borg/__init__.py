"""Google's cluster traces: what their tables tell, as records of a trace."""
