"""The cluster autoscaler in the loop: the cloud with its node groups, and the loop's scans."""
