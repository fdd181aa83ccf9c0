"""Augmentation: draw the random numbers on the host, apply them in a native op."""
