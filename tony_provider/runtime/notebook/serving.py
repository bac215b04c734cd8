"""Run a notebook: serve Jupyter, save the user's files, and stop the server when it is idle or at its end time."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tarfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from .jupyter import CannotServe, Idleness, Jupyter, expect_kernel, expect_token, server_module
from .kept_work import KeptWork

_IDLE, _UNTIL, _KEEP = "--idle", "--until", "--keep"


@dataclass(frozen=True)
class NotebookOptions:
    """Idle limit, end time and size limit of a notebook."""

    idle: float  # seconds without activity after which the notebook ends; 0: no limit
    until: float  # epoch seconds when the notebook ends; 0: never
    keep: int  # size limit in bytes for the work that is kept

    @property
    def arguments(self) -> str:
        """The options as a command line."""
        return f"{_IDLE} {self.idle:g} {_UNTIL} {self.until:.0f} {_KEEP} {self.keep}"

    @classmethod
    def of(cls, arguments: Sequence[str]) -> NotebookOptions:
        """Parse command-line arguments. Exits with a message if a value is no number."""
        parser = argparse.ArgumentParser(prog="python -m tony_notebook")
        parser.add_argument(_IDLE, type=float, required=True)
        parser.add_argument(_UNTIL, type=float, required=True)
        parser.add_argument(_KEEP, type=int, required=True)
        given = parser.parse_args(arguments)
        return cls(given.idle, given.until, given.keep)


CANNOT_RUN = 126  # as in shells: the command cannot be executed, so a retry would not help
TOLD_TO_END = 143  # 128 + SIGTERM, as in shells
# links in the notebook's directory to the job's files and the training's checkpoint
JOB, CHECKPOINT = "job", "checkpoint"
_PERIOD = 5.0  # seconds between two polls
_SHORT = 4  # minimum number of polls within the idle limit
_KEEP_EVERY = 30.0  # minimum seconds between two saves of the work
_SHARE = 20.0  # pause after an action, as a multiple of the action's duration: its load stays below 5 %


def main(arguments: Sequence[str]) -> int:
    """Run the program, and return its exit code."""
    options = NotebookOptions.of(arguments)
    try:
        expect_token()
        module = server_module()
        expect_kernel()
    except CannotServe as error:
        sys.stderr.write(f"cannot execute a notebook: {error}\n")
        return CANNOT_RUN
    work = Path(__file__).resolve().parents[2] / "notebook"  # in the container's workspace
    kept = KeptWork(work, Path(os.environ["TONY_CHECKPOINT_DIR"]), options.keep, (JOB, CHECKPOINT))
    try:
        say(f"the directory is {kept.restore(os.environ.get('TONY_RESUME_FROM'))}")
    except (OSError, tarfile.TarError) as error:
        sys.stderr.write(f"cannot restore the kept files of the notebook: {error}\n")
        return 1
    _link(work / JOB, Path.cwd())
    if before := os.environ.get("TONY_WARM_START"):
        _link(work / CHECKPOINT, Path(before))
    serving = Serving(Jupyter(module, work, int(os.environ["TONY_PORT"])), kept, options)
    signal.signal(signal.SIGTERM, lambda *_: serving.stop_requested.set())
    return serving.run()


def say(text: str) -> None:
    """Write a line to the task's output."""
    sys.stdout.write(f"notebook: {text}\n")
    sys.stdout.flush()


def _link(path: Path, target: Path) -> None:
    """Create or replace the link; a file or directory of the user with this name stays."""
    if path.is_symlink():
        path.unlink()
    if not path.exists():
        path.symlink_to(target)


class Serving:
    """Runs the server until it must end."""

    def __init__(self, jupyter: Jupyter, work: KeptWork, options: NotebookOptions) -> None:
        self.stop_requested = threading.Event()  # set by SIGTERM
        self._jupyter = jupyter
        self._work = work
        self._options = options
        self._not_kept = ""  # which part of the work is not kept, and why, for users
        self._next_poll = 0.0  # earliest time for the next listing of files
        self._next_keep = 0.0

    def run(self) -> int:
        """Serve until the server ends or must end. Return the exit code of the program."""
        self._jupyter.start()
        try:
            why = self._until_the_end()
        finally:
            self._jupyter.stop()
            self._work.poll()
            if not self._work.is_kept:
                self._keep()
        code = self._jupyter.ended
        if self.stop_requested.is_set():
            return TOLD_TO_END
        if why is None and code:
            say(f"Jupyter has ended with exit code {code}")
            return code if code > 0 else 128 - code
        why = why or "ended by the user"
        say(why)
        self._leave_result(why)
        return 0

    def _until_the_end(self) -> Optional[str]:
        """Wait for the end. Return the reason to end the server, or None after its own end or SIGTERM."""
        idle, until = self._options.idle, self._options.until
        idleness = Idleness(time.monotonic())
        period = min(_PERIOD, idle / _SHORT) if idle else _PERIOD
        while not self.stop_requested.wait(period):
            if self._jupyter.ended is not None:
                return None
            touched = self._poll_files()
            if not self._work.is_kept and (self._is_wanted() or time.monotonic() >= self._next_keep):
                self._keep()
            quiet = idleness.record(self._jupyter.activity(), time.monotonic(), changed=touched)
            if idle and quiet >= idle:
                return f"ended: no activity for {quiet:.0f} s"
            if until and time.time() >= until:
                return "ended: the end time is reached"
        return None

    def _poll_files(self) -> bool:
        """Return whether a file has changed. Skips polls if listing the directory takes long."""
        began = time.monotonic()
        if began < self._next_poll:
            return False
        touched = self._work.poll()
        self._next_poll = began + _SHARE * (time.monotonic() - began)
        return touched

    def _is_wanted(self) -> bool:
        """Return whether a checkpoint was requested, which makes the program save the work immediately."""
        try:
            Path(os.environ.get("TONY_CHECKPOINT_REQUEST", "")).unlink()
        except OSError:
            return False
        return True

    def _keep(self) -> None:
        began = time.monotonic()
        try:
            say(self._work.keep())
            self._not_kept = self._work.missing
        except OSError as error:  # retried later, when a full disk may have room
            self._not_kept = f"the work could not be kept: {error}"
            say(self._not_kept)
        took = time.monotonic() - began
        self._next_keep = began + took + max(_KEEP_EVERY, _SHARE * took)

    def _leave_result(self, why: str) -> None:
        """Write the job's result, from which ``airflow tony notebook`` reports what was kept."""
        if path := os.environ.get("TONY_RESULT_FILE"):
            result = {"ended": why, "kept": self._work.number, "not_kept": self._not_kept}
            Path(path).write_text(json.dumps(result))
