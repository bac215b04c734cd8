"""Helper processes: environment without secrets, memory and time limits, protection from tracing, and a log on stderr.

Only listed environment variables are kept, because the starting process may be an Airflow worker with connections,
keys and cloud credentials in its environment. Relative entries of search paths are left out, because they depend on the
current directory.
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
    """Return the command line that runs a module in this process's interpreter, without ``site`` and its packages."""
    return [sys.executable, "-S", "-m", module, *arguments]


def helper_environment() -> dict[str, str]:
    """Return the variables for a process of ``helper_command``: its module search path, and no secrets."""
    return {**child_environment(), "PYTHONPATH": absolute_entries(os.pathsep.join(sys.path))}


def limit_memory(most: int) -> None:
    """Limit this process to ``most`` bytes of address space, and make it the first to be killed if memory runs out."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def limit_time(seconds: int) -> None:
    """Make the system end this process after ``seconds`` more of CPU time."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + seconds, hard))


_PR_SET_DUMPABLE = 4  # linux/prctl.h


def keep_memory_private() -> None:
    """Prevent processes of the same user from tracing this process, or reading its memory or environment in /proc.

    Programs that this process starts are not protected, see prctl(2). Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_DUMPABLE): {os.strerror(number)}")


LOG_LIMIT = 8 << 20  # bytes of the log file; the previous file (suffix ``.1``) has the same limit
_STDERR = 2


def configure_log() -> None:
    """Send this process's log lines to its stderr, through ProcessLog, from now on."""
    logging.basicConfig(
        handlers=[ProcessLog()], level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%F %T"
    )


class ProcessLog(logging.Handler):
    """Handler that writes printable lines to stderr. A file at stderr is copied and emptied at LOG_LIMIT.

    On a full disk only lines are lost: without a buffer, no flush can fail at exit. The handler does not rename the
    file, because the program that opened the file continues to use its name.
    """

    def emit(self, record: logging.LogRecord) -> None:
        line = (printable(self.format(record)) + "\n").encode()
        with suppress(OSError):
            _turn_over(len(line))
            os.write(_STDERR, line)


def _turn_over(size: int) -> None:
    """Copy and empty the log before ``size`` more bytes would exceed the limit. Raises OSError."""
    status = os.fstat(_STDERR)
    if not stat.S_ISREG(status.st_mode) or status.st_size + size <= LOG_LIMIT:
        return
    path = Path(f"/proc/self/fd/{_STDERR}").readlink()
    with suppress(OSError):
        shutil.copyfile(path, f"{path}.1")
    os.ftruncate(_STDERR, 0)
    os.lseek(_STDERR, 0, os.SEEK_SET)
