"""The error of an environment that is not to be had on this node."""

from __future__ import annotations


class PythonEnvError(Exception):
    """The job's Python environment is not on this node, or cannot be used here."""
