"""``airflow tony logs``: print the output of a job's tasks."""

from __future__ import annotations

import shutil
import sys
import time
from argparse import Namespace

from tony_provider.cli.command import NotFound, application_of, command, hook_of, identity_of
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.quantities import count, size
from tony_provider.runtime.common.text import LONGEST_LINE, end_of_log, for_terminal
from tony_provider.runtime.protocol.http_messages import read_kept
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, read_bytes
from tony_provider.runtime.storage.errors import StorageNotFound
from tony_provider.watching.task_output import TAIL, OutputChunk, OutputFollower, OutputPosition

_SECONDS = 10.0  # time limit of a master
_PAUSE = 2.0  # seconds between two polls of a running task
_AM = "am"  # the application master, in place of a task


@command
def logs(args: Namespace) -> None:
    """Print the kept logs of ended tasks, or the end of the output of running tasks."""
    with hook_of(args) as hook:
        found = application_of(hook, args)
        if args.task == _AM:
            _print(hook.log_tail(found.application_id).encode())
            return
        identity = identity_of(hook, found)
        is_live = found.application is not None and not found.application.is_final
        if is_live:
            _live(hook, identity, found.application_id, args)
        else:
            _kept(hook, identity, found.application_id, args.task)


def _live(hook: TonyHook, identity: Identity, application_id: str, args: Namespace) -> None:
    """Print the output of running tasks, with ``--follow`` until the application ends."""
    live = _followers(hook, identity, application_id, args.task)
    while True:
        application = hook.application(application_id)
        over = application is None or application.is_final
        for each in live:
            new = _rest(hook, identity, application_id, each) if over else each.new()
            if new and len(live) > 1:
                _print(f"==> {each.task} <==\n".encode())
            for piece in new:
                if piece.skipped:
                    _print(f"[tony] {count(piece.skipped, 'more container')} printed here\n".encode())
                if piece.missed:
                    _print(f"[tony] {size(piece.missed)} more were printed here\n".encode())
                _print(piece.data)
        if not args.follow:
            _explain(live)
        if over or not args.follow:
            return
        time.sleep(_PAUSE)
        if not live:  # its tasks are known once its master has begun
            live = _followers(hook, identity, application_id, args.task)


def _followers(hook: TonyHook, identity: Identity, application_id: str, task: str | None) -> list[OutputFollower]:
    tasks = _tasks(hook, identity, application_id, task)
    return [OutputFollower(hook, application_id, each, seconds=_SECONDS, older_masters=True) for each in tasks]


def _explain(live: list[OutputFollower]) -> None:
    """Raise NotFound with the problems if there was no output at all."""
    if all(each.problem for each in live):
        raise NotFound("; ".join(each.problem for each in live) or "no task has started yet")


def _tasks(hook: TonyHook, identity: Identity, application_id: str, task: str | None) -> list[str]:
    """Return the job's tasks, or only the requested task."""
    if task is not None:
        return [task]
    status = hook.job_status(identity, application_id)
    return [each.name for each in status.tasks] if status is not None else []


def _rest(hook: TonyHook, identity: Identity, application_id: str, live: OutputFollower) -> list[OutputChunk]:
    """Return the kept output of the task's newest container that was not shown yet."""
    prefix = contract.log_prefix(live.task)
    wanted = [file for file in _files(hook, identity, application_id) if file.name.startswith(prefix)]
    if not wanted:
        return []
    newest = max(wanted, key=lambda file: file.modified_ms)
    if live.is_of_older_master:
        # Cut like the master cuts it, so that the end that was seen is found in it.
        kept = read_bytes(hook.storage(), newest.path, offset=max(0, newest.size - TAIL - 1), length=TAIL + 1)
        return [OutputChunk(live.rest(end_of_log(kept, TAIL)))]
    shown = live.position.offset if newest.name == contract.log_name(live.task, live.position.attempt or 1) else 0
    piece = read_kept(hook.storage(), newest.path, shown, TAIL)
    live.position = OutputPosition(live.position.attempt, piece.end)
    return [OutputChunk(piece.data, piece.start - shown)] if piece.data else []


def _files(hook: TonyHook, identity: Identity, application_id: str) -> list[FileStatus]:
    directory = uris.join(hook.application_dir(identity, application_id), contract.LOGS_DIR)
    try:
        return [file for file in hook.storage().list(directory) if not file.is_directory]
    except StorageNotFound:
        return []


def _kept(hook: TonyHook, identity: Identity, application_id: str, task: str | None) -> None:
    files = _files(hook, identity, application_id)
    wanted = [file for file in files if task is None or file.name.startswith(contract.log_prefix(task))]
    if not wanted:
        known = "; there are " + ", ".join(file.name for file in files) if files else ""
        directory = hook.application_dir(identity, application_id)
        raise NotFound(f"no log of {task or 'any task'} was kept in {directory}{known}")
    for file in wanted:
        if len(wanted) > 1:
            _print(f"==> {file.name} <==\n".encode())
        _copy(hook, file)


def _copy(hook: TonyHook, file: FileStatus) -> None:
    sys.stdout.flush()
    with hook.storage().open_read(file.path) as stream:
        if sys.stdout.isatty():
            while line := stream.readline(LONGEST_LINE):
                _print(line)
        else:
            shutil.copyfileobj(stream, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _print(data: bytes) -> None:
    """Print bytes unchanged, or to a terminal without control sequences other than colours and progress bars."""
    sys.stdout.flush()
    sys.stdout.buffer.write(for_terminal(data) if sys.stdout.isatty() else data)
    sys.stdout.buffer.flush()
