"""The figures of a run: counted while it goes, as one value, and as tables for users."""
