"""The inputs and observations of a recorded cluster, independent of the recording's format."""
