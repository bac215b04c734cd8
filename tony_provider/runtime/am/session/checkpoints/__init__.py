"""Checkpoints as far as they steer the job."""
