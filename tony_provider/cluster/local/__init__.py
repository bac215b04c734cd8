"""Local backend: runs jobs on this machine."""
