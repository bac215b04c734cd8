"""The exception that ends blocking work whose caller has cancelled it."""

from __future__ import annotations


class Cancelled(Exception):  # noqa: N818 - describes what happened
    """The caller cancelled the work. The work left nothing behind."""
