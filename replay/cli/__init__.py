"""The commands of `reprieve`, thin over the rest."""
