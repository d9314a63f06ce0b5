"""Tests of the world: objects, controllers, lives, and the loop that plays them."""
