"""Restarts, from a failure to the next start: what it was, whether anything starts again, what, and when."""
