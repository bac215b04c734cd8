"""The directory for what a user's processes keep between submissions: runtime archives, hashes of large files."""

from __future__ import annotations

import os
from pathlib import Path

from tony_provider.cluster.errors import StagingFailed
from tony_provider.runtime.own_directory import ForeignDirectoryError, make_own_directory


def user_cache(wanted: Path | None = None) -> Path:
    """Return the directory, which defaults to ``tony-provider`` in the user's cache directory.

    Raises StagingFailed if another user could write there, OSError.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = wanted or base / "tony-provider"
    try:
        make_own_directory(directory)
    except ForeignDirectoryError as error:
        raise StagingFailed(f"the cache of runtime archives (XDG_CACHE_HOME) cannot be used: {error}") from error
    return directory
