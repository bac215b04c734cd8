"""Checkpoints: recognise complete saves, choose the checkpoint to resume from, store and restore checkpoints."""
