"""``airflow tony tensorboard``: the curves of jobs, running or ended, in a browser of this machine."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import webbrowser
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from tony_provider.cli.command import command
from tony_provider.cli.event_file_copy import EventFileCopy
from tony_provider.cli.named import NotFound, applications_of, hook_of, identity_of
from tony_provider.cli.printing import say
from tony_provider.cli.tensorboard_server import (
    TensorBoardProblem,
    TensorBoardServer,
    choose_port,
    expect_tensorboard,
)
from tony_provider.cli.times import seconds_of
from tony_provider.cli.told_to_end import until_told_to_end
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.quantities import count, size
from tony_provider.runtime.spec.units import UnitError, parse_memory

_PERIOD = 0.2  # seconds between two looks at what goes on in here
_START_SECONDS = 60.0  # for TensorBoard to answer
_MEBIBYTE = 1 << 20
_SHORTEST_REFRESH = 1.0  # seconds


@command
def tensorboard(args: Namespace) -> None:
    """The command. Copies event files, shows them, and leaves nothing behind when it is ended by Ctrl-C or a signal."""
    refresh = max(_SHORTEST_REFRESH, seconds_of("--refresh", args.refresh))
    most_bytes = _bytes_of("--most", args.most)
    expect_tensorboard()
    port = choose_port(args.port)
    hook = hook_of(args)
    with ExitStack() as stack:
        stack.callback(hook.close)
        jobs = _jobs(hook, args)
        over = stack.enter_context(until_told_to_end())
        private = stack.enter_context(_private_directory())
        curves, own = private / "curves", private / "own"
        curves.mkdir()
        own.mkdir()
        sources = {uri: curves / label for uri, label in jobs.labels.items()}
        copy = EventFileCopy(hook, sources, jobs.trainings, refresh=refresh, most_bytes=most_bytes)
        stack.callback(copy.stop)
        copy.start()
        if not _first_look(copy, sources, over):
            return
        server = TensorBoardServer(private, curves, own, port, ", ".join(jobs.labels.values()))
        stack.callback(server.stop)
        server.start()
        _serve(server, copy, over, in_browser=args.open)


@attrs.frozen
class _Jobs:
    """What is drawn, and the trainings that it is of."""

    labels: dict[str, str]  # by the URIs of directories of event files on the store
    trainings: list[Identity]


def _jobs(hook: TonyHook, args: Namespace) -> _Jobs:
    """Applications that have trained in the same checkpoint chain have the same curves, and are drawn once."""
    labels: dict[str, str] = {}
    trainings = []
    for found in applications_of(hook, args):
        identity = identity_of(hook, found)
        source = hook.event_files(identity, found.application_id)
        labels.setdefault(source.uri, source.label)
        trainings.append(identity)
    return _Jobs(labels, trainings)


@contextmanager
def _private_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="tony-tensorboard-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def _first_look(copy: EventFileCopy, sources: Mapping[str, Path], over: threading.Event) -> bool:
    """Wait for it, and say what is there; False when the end comes before.

    Raises NotFound when there is nothing and nothing will come, and what keeps the store from being read.
    """
    say(f"Copying the event files of {count(len(sources), 'job')}")
    while not copy.looked.wait(_PERIOD):
        if over.is_set():
            return False
    if copy.fault is not None:
        raise copy.fault
    held = {directory: copy.held(directory) for directory in sources.values()}
    nothing = not any(files for files, _ in held.values())
    if nothing and copy.trouble is not None:
        raise copy.trouble
    if nothing and not copy.runs:
        raise NotFound(
            f"there are no event files in {', '.join(sources)}: programs leave them in the directory that "
            "TONY_TENSORBOARD_DIR names, see docs/tensorboard.md"
        )
    for directory, (files, most) in held.items():
        say(f"  {directory.name}: {count(files, 'file')}, {size(most)}" if files else f"  {directory.name}: none yet")
    return not over.is_set()


def _serve(server: TensorBoardServer, copy: EventFileCopy, over: threading.Event, *, in_browser: bool) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not server.answers:
        if over.wait(_PERIOD):
            return
        if time.monotonic() > deadline:
            raise TensorBoardProblem(f"TensorBoard does not answer within {_START_SECONDS:g} s")
    say(f"TensorBoard: {server.url}\nCtrl-C ends it")
    if in_browser:
        webbrowser.open(server.url)
    while not over.wait(_PERIOD):
        server.expect_running()
        if copy.fault is not None:
            raise copy.fault
        while not copy.news.empty():
            say(copy.news.get())


def _bytes_of(option: str, text: str) -> int:
    try:
        return parse_memory(text) * _MEBIBYTE
    except UnitError as error:
        raise SystemExit(f"{option}: {error}") from error
