"""Inputs of a job: files that are listed once, and dealt to its tasks as shards."""
