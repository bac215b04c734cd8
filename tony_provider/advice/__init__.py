"""Advice: rules that examine the history of a job and recommend changes for its next run."""
