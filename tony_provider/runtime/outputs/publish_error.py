"""The error that an output cannot get to its path."""

from __future__ import annotations


class PublishError(Exception):
    """An output cannot get to its path, now or later; the message has the path of the key in the job."""
