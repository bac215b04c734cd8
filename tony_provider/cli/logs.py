"""``airflow tony logs``: what the tasks of a job have printed."""

from __future__ import annotations

import shutil
import sys
import time
from argparse import Namespace

from tony_provider.cli.command import command
from tony_provider.cli.live_log import TAIL, LiveLog
from tony_provider.cli.named import NotFound, application_of, hook_of, identity_of
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime import contract
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus
from tony_provider.runtime.storage.errors import StorageNotFound
from tony_provider.runtime.storage.helpers import read_bytes
from tony_provider.runtime.text import end_of_log

_PAUSE = 2.0  # seconds between two looks at a running task
_AM = "am"  # the application master, in place of a task


@command
def logs(args: Namespace) -> None:
    """The command. Prints the kept logs of ended tasks, and the end of what running ones print."""
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
    """Of one task as it prints, with ``--follow`` until the application ends; of all a last piece each."""
    tasks = _tasks(hook, identity, application_id, args.task)
    live = [LiveLog(hook, application_id, task) for task in tasks]
    while True:
        application = hook.application(application_id)
        over = application is None or application.is_final
        for each in live:
            new = each.rest(_kept_end(hook, identity, application_id, each.task)) if over else each.new()
            if new and len(live) > 1:
                _print(f"==> {each.task} <==\n".encode())
            _print(new)
        if not args.follow:
            _explain(live)
        if over or not args.follow:
            return
        time.sleep(_PAUSE)
        if not live:  # its tasks are known once its master has begun
            live = [LiveLog(hook, application_id, task) for task in _tasks(hook, identity, application_id, args.task)]


def _explain(live: list[LiveLog]) -> None:
    """What could not be had, when there was nothing at all."""
    if all(each.problem for each in live):
        raise NotFound("; ".join(each.problem for each in live) or "no task has started yet")


def _tasks(hook: TonyHook, identity: Identity, application_id: str, task: str | None) -> list[str]:
    """Those that the job has, or the one that was asked for."""
    if task is not None:
        return [task]
    status = hook.job_status(identity, application_id)
    return [each.name for each in status.tasks] if status is not None else []


def _kept_end(hook: TonyHook, identity: Identity, application_id: str, task: str) -> bytes:
    """Of the task's newest container; empty when nothing was kept."""
    prefix = contract.log_prefix(task)
    wanted = [file for file in _files(hook, identity, application_id) if file.name.startswith(prefix)]
    if not wanted:
        return b""
    newest = max(wanted, key=lambda file: file.modified_ms)
    # Cut as its master cuts it, so that the end that was seen is found in it.
    return end_of_log(read_bytes(hook.storage(), newest.path, offset=max(0, newest.size - TAIL - 1)), TAIL)


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
        shutil.copyfileobj(stream, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _print(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
