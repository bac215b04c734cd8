"""What text can go anywhere."""

from __future__ import annotations


def is_writable(text: str) -> bool:
    """Whether UTF-8 can write it. JSON may hold half of a surrogate pair, and Python's names of files do for bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def replaced(text: str) -> str:
    """With a question mark for each character that UTF-8 cannot write."""
    return text.encode("utf-8", "replace").decode()
