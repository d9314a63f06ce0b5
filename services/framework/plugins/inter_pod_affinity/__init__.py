"""InterPodAffinity: pods that must or should be near others, or apart from them."""
