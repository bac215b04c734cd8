"""What a page says that a web server answers with where something else was asked for."""

from __future__ import annotations

_LOOKED_AT = 16 << 10  # bytes; a job's own master may answer with any page, as long as it likes


def said_by_page(page: bytes) -> str:
    """Its title, in which Hadoop's servers say what is wrong; of a page without one the beginning."""
    beginning = page[:_LOOKED_AT]
    small = beginning.lower()
    start = small.find(b"<title>") + len(b"<title>")
    end = small.find(b"</title>", start) if start >= len(b"<title>") else -1
    return (beginning[start:end] if end >= 0 else beginning).decode("utf-8", "replace")
