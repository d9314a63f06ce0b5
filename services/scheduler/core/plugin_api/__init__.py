"""What a plugin derives from, receives and returns."""
