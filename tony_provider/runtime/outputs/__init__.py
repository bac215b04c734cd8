"""Directories that tasks write: where they are on the store while the job runs, and how they get to their paths."""
