"""The environment variables of helper processes, without secrets of the process that starts them.

The variables are listed by name, because the starting process may be an Airflow worker with connections, keys and cloud
logins in its environment. Relative entries of search paths are left out, because they depend on the current directory.
"""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import shutil
import stat
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from tony_provider.runtime.common.text import printable

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


def helper_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module in this process's interpreter, without looking for packages at its start."""
    return [sys.executable, "-S", "-m", module, *arguments]


def helper_environment() -> dict[str, str]:
    """Return the variables for such a process: its module search path, and no secret of this process."""
    return {**child_environment(), "PYTHONPATH": absolute_entries(os.pathsep.join(sys.path))}


def limit_memory(most: int) -> None:
    """Hold this process to so many bytes of addresses; where memory ends, it goes before all others."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def limit_time(seconds: int) -> None:
    """Have this process ended by the system after so many seconds of processor time more."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + seconds, hard))


_PR_SET_DUMPABLE = 4  # linux/prctl.h


def keep_memory_private() -> None:
    """Keep processes of the same user from tracing this one, and from its memory and environment in /proc.

    Whom it starts may be traced as ever; prctl(2) has the rest. Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_DUMPABLE): {os.strerror(number)}")


LOG_LIMIT = 8 << 20  # bytes of the file; as many again in the one before, with ``.1`` at the end of its name
_STDERR = 2


def configure_log() -> None:
    """Send this process's log lines to its stderr, through OwnLog, from now on."""
    logging.basicConfig(
        handlers=[ProcessLog()], level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%F %T"
    )


class ProcessLog(logging.Handler):
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
    if not stat.S_ISREG(status.st_mode) or status.st_size + size <= LOG_LIMIT:
        return
    path = Path(f"/proc/self/fd/{_STDERR}").readlink()
    with suppress(OSError):
        shutil.copyfile(path, f"{path}.1")
    os.ftruncate(_STDERR, 0)
    os.lseek(_STDERR, 0, os.SEEK_SET)
