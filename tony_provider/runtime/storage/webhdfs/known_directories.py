"""Directories that are known to be on the store, so that nobody asks for them again with each file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tony_provider.runtime.storage.uris import Uri

_MOST = 10_000


class KnownDirectories:
    """Directories that this process has made or found. Others may have removed them since."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._paths: set[str] = set()

    def has(self, directory: Uri) -> bool:
        with self._lock:
            return directory.path in self._paths

    def add(self, directory: Uri) -> None:
        with self._lock:
            if len(self._paths) >= _MOST:
                self._paths.clear()
            self._paths.add(directory.path)

    @contextmanager
    def without(self, removed: Uri) -> Iterator[None]:
        """Forget it, and what is below it, while it is removed, and what others say of it meanwhile as well."""
        self.forget(removed)
        try:
            yield
        finally:
            self.forget(removed)

    def forget(self, removed: Uri) -> None:
        """This one, and all that is below it."""
        below = removed.path.rstrip("/") + "/"
        with self._lock:
            self._paths = {path for path in self._paths if path != removed.path and not path.startswith(below)}
