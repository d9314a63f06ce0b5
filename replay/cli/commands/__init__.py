"""The commands of `reprieve`, a module each or for a few that belong together."""
