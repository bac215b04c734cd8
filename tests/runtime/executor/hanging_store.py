"""A program: an executor whose store does not come to an end with a file while another, ``<file>.hangs``, is there.

A mock: no file of this machine's disk can be had to hang.
"""

from __future__ import annotations

import runpy
import time
from pathlib import Path
from typing import Any, BinaryIO

from tony_provider.runtime.storage import LocalStorage, local_path

_open_read = LocalStorage.open_read


def _waits(self: LocalStorage, uri: str, **which: Any) -> BinaryIO:
    while Path(f"{local_path(uri)}.hangs").exists():
        time.sleep(0.05)
    return _open_read(self, uri, **which)


if __name__ == "__main__":
    setattr(LocalStorage, "open_read", _waits)  # noqa: B010 - a method, to mypy
    runpy.run_module("tony_provider.runtime.executor", run_name="__main__")
