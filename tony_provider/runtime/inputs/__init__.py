"""Inputs of a job: files that are listed once and distributed to its tasks as shards."""
