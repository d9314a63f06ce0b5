"""Searches: replays at chosen values of knobs, until the border at which checks begin to fail."""
