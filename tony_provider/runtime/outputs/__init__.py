"""Outputs of a job: staging directories for the tasks' files, and publication of these files at the output's path."""
