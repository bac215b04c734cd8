"""The log of application masters and executors themselves: on stderr, a file that stays small."""

from __future__ import annotations

import logging
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from tony_provider.runtime.text import printable

LIMIT = 8 << 20  # bytes of the file; as many again in the one before, with ``.1`` at the end of its name
_STDERR = 2


def configure() -> None:
    """Send this process's log lines to its stderr, through OwnLog, from now on."""
    logging.basicConfig(
        handlers=[OwnLog()], level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%F %T"
    )


class OwnLog(logging.Handler):
    """A handler that writes to stderr, without what a terminal obeys, and empties its file when that has grown large.

    A disk that is full costs lines, and nothing else: no buffer is left that the end of the process would trip over.
    The file is another program's making, which has opened it and keeps its name: so it is copied and emptied.
    """

    def emit(self, record: logging.LogRecord) -> None:
        line = (printable(self.format(record)) + "\n").encode()
        with suppress(OSError):
            _turn_over(len(line))
            os.write(_STDERR, line)


def _turn_over(size: int) -> None:
    """Before so many bytes are written. Raises OSError."""
    status = os.fstat(_STDERR)
    if not stat.S_ISREG(status.st_mode) or status.st_size + size <= LIMIT:
        return
    path = Path(f"/proc/self/fd/{_STDERR}").readlink()
    with suppress(OSError):
        shutil.copyfile(path, f"{path}.1")
    os.ftruncate(_STDERR, 0)
    os.lseek(_STDERR, 0, os.SEEK_SET)
