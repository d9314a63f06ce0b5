"""The scheduling queue's pure core."""
