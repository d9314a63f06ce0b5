"""VolumeZone: a node in a zone takes only volumes of that zone, by the labels of both."""
