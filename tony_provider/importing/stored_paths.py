"""Paths of files on HDFS, which other systems write without a scheme."""

from __future__ import annotations

from tony_provider.importing.draft import Draft


def on_hdfs(draft: Draft, key: str, path: object) -> str:
    """The URI of a path; one that begins in somebody's home is told of."""
    text = str(path)
    if "://" in text:
        return text
    if not text.startswith("/"):
        draft.leave(key, "begins in the user's home on HDFS; here it begins at the top: write the whole path", text)
    return f"hdfs:///{text.lstrip('/')}"
