"""VolumeRestrictions: disks that two pods cannot share, and claims for one pod alone."""
