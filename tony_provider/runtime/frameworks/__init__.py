"""Frameworks, one per module: how the tasks of a job find each other."""
