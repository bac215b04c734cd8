"""Checkpoints: which are complete, which one to go on from, and how they get to the store and back."""
