"""What text can go anywhere."""

from __future__ import annotations


def is_writable(text: str) -> bool:
    """Whether UTF-8 can write it. JSON may hold half of a surrogate pair, and Python's names of files do for bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
