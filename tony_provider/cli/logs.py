"""``airflow tony logs``: print the output of a job's tasks."""

from __future__ import annotations

import sys
import time
from argparse import Namespace

from tony_provider.cli.command import NotFound, command, expect_directory, hook_of, job_of
from tony_provider.hooks.job import TonyJob
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.quantities import count, size, some
from tony_provider.runtime.common.text import for_terminal
from tony_provider.watching.task_output import OutputChunk, OutputFollower, OutputPosition, kept_output

_SECONDS = 10.0  # time limit for one answer of an application master
_PAUSE = 2.0  # seconds between two polls of a running task
_TAIL = 64 << 10  # maximum bytes to print from the end of the stored log of a task that has just ended
_PIECE = 1 << 20  # bytes of a stored log to read at once, because a program of the job may have written a huge log
_AM = "am"  # value of --task for the application master


@command
def logs(args: Namespace) -> None:
    """Print the stored logs if the job has ended, or the newest output of its tasks if the job runs."""
    with hook_of(args) as hook:
        job, application = job_of(hook, args)
        if args.task == _AM:
            _print(f"{job.master_log().rstrip()}\n".encode())
            return
        expect_directory(job)
        if application and not application.is_final:
            _live(job, args)
        else:
            _kept(job, args.task)


def _live(job: TonyJob, args: Namespace) -> None:
    """Print the newest output of running tasks. With ``--follow``, continue until the application ends."""
    live = _followers(job, args.task)
    while True:
        application = job.application()
        over = not application or application.is_final
        for each in live:
            new = _rest(job, each) if over else each.new()
            if new and len(live) > 1:
                _print(f"==> {each.task} <==\n".encode())
            for piece in new:
                if piece.skipped:
                    _print(f"[tony] output of {count(piece.skipped, 'more container')} left out here\n".encode())
                if piece.missed:
                    _print(f"[tony] {size(piece.missed)} of output left out here\n".encode())
                _print(piece.data)
        if not args.follow:
            _explain(live)
        if over or not args.follow:
            return
        time.sleep(_PAUSE)
        if not live:  # the master reports the tasks once it has started
            live = _followers(job, args.task)


def _followers(job: TonyJob, task: str | None) -> list[OutputFollower]:
    return [OutputFollower(job, each, seconds=_SECONDS) for each in _tasks(job, task)]


def _explain(live: list[OutputFollower]) -> None:
    """If no task's output could be read, raise NotFound with the reasons."""
    if all(each.problem for each in live):
        raise NotFound("; ".join(each.problem for each in live) or "no task has started yet")


def _tasks(job: TonyJob, task: str | None) -> list[str]:
    """Return the job's tasks, or only the requested task."""
    if task:
        return [task]
    status = job.status()
    return [each.name for each in status.tasks] if status else []


def _rest(job: TonyJob, live: OutputFollower) -> list[OutputChunk]:
    """Return the stored output of the task's newest container, from the first byte that was not printed yet."""
    kept = kept_output(job, live.task, live.position, _TAIL)
    if not kept:
        return []
    live.position = OutputPosition(live.position.attempt, kept.end)
    return [OutputChunk(kept.data, kept.missed)] if kept.data else []


def _kept(job: TonyJob, task: str | None) -> None:
    wanted = job.stored_logs(task)
    if not wanted:
        tasks = dict.fromkeys(contract.task_of_log(log.name)[0] for log in job.stored_logs())
        known = (
            f"; there are logs of {some(tasks, 20)}"
            if tasks
            else f"; on YARN, also try `yarn logs -applicationId {job}`"
        )
        raise NotFound(f"no log of {task or 'any task'} is stored in {job.directory}{known}")
    for log in wanted:
        if len(wanted) > 1:
            name, attempt = contract.task_of_log(log.name)
            container = f", container {attempt}" if attempt > 1 else ""
            _print(f"==> {name}{container} <==\n".encode())
        rest = b""  # an incomplete line, kept for the next piece so that no control sequence is split
        for offset in range(0, log.size, _PIECE):
            data = rest + log.read(offset, _PIECE)
            end = data.rfind(b"\n") + 1 or len(data)
            _print(data[:end])
            rest = data[end:]
        _print(rest)


def _print(data: bytes) -> None:
    """Print bytes unchanged, or to a terminal without control sequences other than colours and progress bars."""
    sys.stdout.flush()
    sys.stdout.buffer.write(for_terminal(data) if sys.stdout.isatty() else data)
    sys.stdout.buffer.flush()
