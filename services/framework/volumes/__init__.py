"""What the volume plugins share: claims of pods, migrated disks, volumes that fit a claim."""
