"""Shared by the volume plugins: claims of pods, migrated disks, volumes that fit a claim."""
