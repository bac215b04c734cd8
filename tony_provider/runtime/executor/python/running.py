"""Programs that the preparation runs: their output, within limits, without what is the executor's own."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import attrs

from tony_provider.runtime.cancellation import Cancelled
from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.python.errors import PythonEnvError

SECONDS = 900.0  # for one program: a PEX of several GB unpacks itself
_LOOK_SECONDS = 0.1
_MOST_SAID = 2000  # characters of what a failed program has printed


@attrs.frozen
class Runner:
    """Runs programs in a container, with these variables and no others."""

    environ: Mapping[str, str]
    cancelled: threading.Event

    def output(self, command: Sequence[str], what: str, **more: str) -> str:
        """What a program has printed, once it has ended well; ``more`` are further variables.

        Blocks. Raises PythonEnvError with what it has said, where it fails or takes too long; Cancelled; OSError.
        """
        ended, goes_on = os.pipe()  # a program that looks at its standard input ends when this process does
        try:
            with subprocess.Popen(
                command,
                env={**self.environ, **more},
                stdin=ended,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            ) as process:
                processes.claim(process.pid)
                try:
                    out, err = self._wait(process, what)
                finally:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)  # what it has started, too
                    process.wait()
                    processes.disclaim(process.pid)
        finally:
            os.close(ended)
            os.close(goes_on)
        if process.returncode:
            raise PythonEnvError(f"{what} cannot be used on this node: {(err.strip() or out.strip())[-_MOST_SAID:]}")
        return out

    def _wait(self, process: subprocess.Popen[str], what: str) -> tuple[str, str]:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            if self.cancelled.is_set():
                raise Cancelled(f"{what} was cancelled")
            try:
                return process.communicate(timeout=_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        raise PythonEnvError(f"{what} takes more than {SECONDS:g} s")
