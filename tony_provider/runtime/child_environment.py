"""The environment variables of helper processes, without secrets of the process that starts them.

The variables are listed by name, because the starting process may be an Airflow worker with connections, keys and cloud
logins in its environment. Relative entries of search paths are left out, because they depend on the current directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_KEPT = (
    *("HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "TZ", "TMPDIR"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_HOME"),
)
_SEARCH_PATHS = ("PATH", "LD_LIBRARY_PATH")


def child_environment(more: Iterable[str] = (), environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables for a helper process.

    :param more: names of further variables to keep if they are set.
    """
    kept = {name: environ[name] for name in (*_KEPT, *more) if name in environ}
    paths = {name: absolute_entries(environ[name]) for name in _SEARCH_PATHS if name in environ}
    return {"PATH": os.defpath, **kept, **{name: path for name, path in paths.items() if path}}


def absolute_entries(search_path: str) -> str:
    """Return the search path without relative and empty entries."""
    return os.pathsep.join(entry for entry in search_path.split(os.pathsep) if Path(entry).is_absolute())
