"""A process of a task, the user's command or a helper of it: its start, its end and its last lines."""

from __future__ import annotations

import asyncio
import logging

from tony_provider.runtime.executor.output import Capture
from tony_provider.runtime.executor.preparation import ProcessLaunch

log = logging.getLogger(__name__)

_DRAIN_TIMEOUT = 5.0  # seconds for the end of the output, once nobody is left to write it
_OOM_SCORE = 500  # of 1000: the kernel, short of memory, takes the user process rather than its executor

# The score first, then the command in the same process: whatever it starts inherits it.
_START = f'{{ echo {_OOM_SCORE} >/proc/self/oom_score_adj; }} 2>/dev/null; exec /bin/sh -c "$1"'


class UserProcess:
    """One process that runs the user's command, or a helper. ``start`` makes it."""

    def __init__(self, process: asyncio.subprocess.Process, launch: ProcessLaunch, capture: Capture) -> None:
        self.pid = process.pid
        self.rank = launch.rank
        self.name = launch.name  # among several, for people
        self.command = launch.command
        self.ending = asyncio.ensure_future(process.wait())
        self._capture = capture

    @classmethod
    async def start(cls, launch: ProcessLaunch, capture: Capture) -> UserProcess:
        """Start it with its output in an open capture. Raises OSError when it cannot be started."""
        # The process has no session and no group of its own, because YARN kills the container's process group.
        # It inherits the locks of its GPUs, which last until the process ends. Other files are close-on-exec.
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            *("-c", _START, "sh", "\n".join(filter(None, [launch.before, launch.command]))),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=capture.stdout,
            stderr=capture.stderr,
            close_fds=False,
            env=launch.environ,
        )
        capture.started()
        return cls(process, launch, capture)

    @property
    def failed(self) -> bool:
        """Whether it has ended, and badly."""
        return self.ending.done() and self.ending.result() != 0

    async def last_lines(self) -> str:
        """The last lines of its output, once it is gone."""
        if not await self._capture.drained(_DRAIN_TIMEOUT):
            log.warning("something still holds the output of process %d", self.pid)
        return self._capture.tail()
