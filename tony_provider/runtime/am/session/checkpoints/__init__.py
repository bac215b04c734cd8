"""Checkpoints as far as they steer the job: which tasks make them, which are committed, which one is gone on from."""
