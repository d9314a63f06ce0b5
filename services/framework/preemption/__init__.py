"""The preemptor: candidates, victims with reprieve, one node picked."""
