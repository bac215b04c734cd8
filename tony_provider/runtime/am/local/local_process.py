"""One container of the local cluster: a directory, and a process group that is gone when it is over."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime import shell
from tony_provider.runtime.am.resource_manager import ContainerExit, ExitReason, Launch
from tony_provider.runtime.deadline import within
from tony_provider.runtime.local.container_dir import PID_FILE, container_environment, materialise, write_tokens

# With YARN's numbers, so that the event logs of both read alike.
GIVEN_BACK = ContainerExit(ExitReason.GIVEN_BACK, -105)
NEVER_LAUNCHED = ContainerExit(ExitReason.LOST, -100)
TERM_GRACE = 5.0  # seconds between SIGTERM and SIGKILL of the group
_TAIL = 4096  # bytes of stderr for the diagnostics, as YARN does


@attrs.define(eq=False)
class LocalProcess:
    """The process group of one local container, in its directory."""

    directory: Path
    log_dir: Path
    _process: asyncio.subprocess.Process
    _stopped: bool = False

    @classmethod
    async def start(cls, container_id: str, directory: Path, log_dir: Path, launch: Launch) -> LocalProcess:
        """Create the container's directory and start its program. Raises OSError."""
        await asyncio.to_thread(_prepare, directory, log_dir, launch)
        environment = {**container_environment(container_id, directory, log_dir), **launch.env}
        with (log_dir / "stdout").open("ab") as stdout, (log_dir / "stderr").open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *launch.command,
                cwd=directory,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        started = cls(directory, log_dir, process)
        try:
            await asyncio.to_thread(_note_pid, directory, process.pid)
        except BaseException:
            started.kill()
            raise
        return started

    async def wait(self) -> tuple[ContainerExit, str]:
        """How it ended, and diagnostics. What the process left in its group is killed."""
        code = await self._process.wait()
        self._signal(signal.SIGKILL)
        diagnostics = await asyncio.to_thread(_tail, self.log_dir / "stderr")
        if self._stopped:
            return GIVEN_BACK, diagnostics
        return ContainerExit(ExitReason.EXITED, shell.exit_code(-code) if code < 0 else code), diagnostics

    async def stop(self) -> None:
        """Send SIGTERM to the group, SIGKILL after some seconds. ``wait`` returns when it is over."""
        self._stopped = True
        self._signal(signal.SIGTERM)
        try:
            await within(self._process.wait(), TERM_GRACE)
        except asyncio.TimeoutError:
            self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """Kill the group at once."""
        self._stopped = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return


def _prepare(directory: Path, log_dir: Path, launch: Launch) -> None:
    log_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    materialise(directory, launch.files)
    write_tokens(directory, launch.credentials)


def _note_pid(directory: Path, pid: int) -> None:
    """So that the cluster can find what is left when this application master is killed."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return  # it has ended already
    start = stat.rpartition(")")[2].split()[19]
    partial = directory / f"tony-{PID_FILE}.part"  # no file of the user begins like that
    partial.write_text(f"{pid} {start}\n")
    partial.replace(directory / PID_FILE)  # never half of it, whoever is killed and however full the disk is


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        size: Optional[int] = file.seek(0, os.SEEK_END)
        file.seek(max(0, (size or 0) - _TAIL))
        return file.read().decode("utf-8", "replace")
