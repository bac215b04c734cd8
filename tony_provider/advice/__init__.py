"""Advice: rules that look at what a job has left, and say what should be changed for the next one."""
