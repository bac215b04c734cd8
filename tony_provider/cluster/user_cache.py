"""The directory in which a user's submissions cache runtime archives and hashes of large files."""

from __future__ import annotations

import os
from pathlib import Path

from tony_provider.cluster.errors import StagingFailed
from tony_provider.runtime.own_directory import ForeignDirectoryError, make_own_directory


def user_cache(wanted: Path | None = None) -> Path:
    """Return the directory, which defaults to ``tony-provider`` in the user's cache directory.

    Raises OSError, or StagingFailed if another user could write there.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = wanted or base / "tony-provider"
    try:
        make_own_directory(directory)
    except ForeignDirectoryError as error:
        raise StagingFailed(f"the cache of runtime archives (XDG_CACHE_HOME) cannot be used: {error}") from error
    return directory
