"""``airflow tony tensorboard``: copy event files of jobs to this machine, and show them with TensorBoard.

``EventFileCopy`` copies new data periodically in a thread. ``TensorBoardServer`` runs TensorBoard as a child process.
"""

from __future__ import annotations

import http.client
import importlib.util
import os
import queue
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from argparse import Namespace
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path

import attrs

from tony_provider.cli.command import (
    NotFound,
    bytes_of,
    command,
    expect_directory,
    hook_of,
    jobs_of,
    say,
    seconds_of,
    until_interrupted,
)
from tony_provider.cli.open_tunnel import bind_error
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.task_tunnel import HOST
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.helper_processes import absolute_entries, child_environment
from tony_provider.runtime.common.network import peer_users
from tony_provider.runtime.common.quantities import count, size
from tony_provider.runtime.common.text import replaced
from tony_provider.runtime.event_files.event_file_mirror import MOST_FILES, EventFileMirror, MirrorRound, is_event_file
from tony_provider.runtime.storage.errors import StorageError

_SELDOM = 10  # factor for the refresh interval while no training runs
_END_SECONDS = 10.0  # time for the thread to stop
_PROFILES = "plugins/profile/"  # data of TensorBoard's profiler


def is_copied(name: str) -> bool:
    """Return whether to copy a file of a task: only event files and profiles.

    Other files are untrusted. For example, a projector's configuration may refer to files of this machine, which
    TensorBoard would show.
    """
    return is_event_file(name) or _PROFILES in f"/{name}"


class EventFileCopy:
    """Copies new data in a thread, from ``start`` to ``stop``. Messages for the user are in ``news``.

    :param sources: maps the URI of each directory of event files to a local directory.
    :param trainings: the trainings to which these files belong. While none of them runs, the thread copies less often.
    :param refresh: seconds between two copies.
    """

    def __init__(
        self,
        hook: TonyHook,
        sources: Mapping[str, Path],
        trainings: list[Identity],
        *,
        refresh: float,
        size_limit: int,
    ) -> None:
        self._hook = hook
        self._trainings = trainings
        self._refresh = refresh
        self._size_limit = size_limit
        self._mirror = EventFileMirror(hook.storage(), sources, size_limit, is_copied)
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._work, name="event-files", daemon=True)
        self._said_left_out = self._said_cut = False
        self.looked = threading.Event()  # set after the first copy
        self.news: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.trouble: Exception | None = None  # error of the last copy; None if it succeeded
        self.fault: Exception | None = None  # the unexpected error that ended the thread; None if there was none
        self.runs = True  # whether a training ran when the cluster last answered; True at first

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop copying, even if the store does not answer, and close the hook."""
        self._given_up.set()
        self._hook.close()
        if self._thread.ident is not None:
            self._thread.join(_END_SECONDS)

    def held(self, directory: Path) -> tuple[int, int]:
        """Return the number and the total bytes of files below ``directory``. Do not call this during a copy."""
        return self._mirror.held(directory)

    def _work(self) -> None:
        try:
            while not self._given_up.is_set():
                self._look()
                self.looked.set()
                self._given_up.wait(self._refresh if self.runs else _SELDOM * self._refresh)
        except Exception as fault:  # noqa: BLE001 - the main thread raises it
            self.fault = fault
            self.looked.set()

    def _look(self) -> None:
        trouble: Exception | None = None
        try:
            self.runs = any(self._hook.find(training) for training in self._trainings)
        except (ClusterError, StorageError) as error:  # the copy may still succeed
            trouble = error
        try:
            done = self._mirror.round(self._given_up)
        except (StorageError, OSError) as error:
            self._tell_trouble(error)
            return
        self._tell_trouble(done.trouble or trouble)
        self._tell_left_out(done)

    def _tell_trouble(self, trouble: Exception | None) -> None:
        """Report the start and the end of a problem. Report nothing after ``stop``."""
        if self._given_up.is_set():
            return
        if trouble is not None and self.trouble is None:
            self.news.put(
                f"Some data cannot be read now; TensorBoard shows the data that were copied before: {trouble}"
            )
        elif trouble is None and self.trouble is not None:
            self.news.put("All data can be read again")
        self.trouble = trouble

    def _tell_left_out(self, done: MirrorRound) -> None:
        if done.left_out and not self._said_left_out:
            self._said_left_out = True
            self.news.put(
                f"{count(done.left_out, 'file')} left out: more than {size(self._size_limit)} would be copied; name "
                "fewer jobs, or raise --most"
            )
        if done.is_cut and not self._said_cut:
            self._said_cut = True
            self.news.put(f"A job has more than {MOST_FILES:,} event files: the rest is left out")


FIRST_PORT = 6006  # TensorBoard's default
LAST_PORT = 6105
_SERVER_END_SECONDS = 5.0
_ANSWER_SECONDS = 5.0  # time limit for TensorBoard's answer to one request
_SAID = 2000  # maximum bytes of TensorBoard's output in an error message


class TensorBoardProblem(ClusterError):  # noqa: N818 - named for what it is
    """TensorBoard cannot run on this machine, or has ended. The message suggests a solution."""


def expect_tensorboard() -> None:
    """Raise TensorBoardProblem if TensorBoard is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise TensorBoardProblem(
            f"the package tensorboard is not installed here: {sys.executable} -m pip install tensorboard"
        )


def choose_port(wanted: int | None) -> int:
    """Return the requested port, or the first free one. Raises TensorBoardProblem if there is none."""
    if wanted is not None and not 0 < wanted < 1 << 16:
        raise TensorBoardProblem(f"--port {wanted} is not a port: use 1 to 65535")
    ports = range(FIRST_PORT, LAST_PORT + 1) if wanted is None else [wanted]
    for port in ports:
        if bind_error(port) is None:
            return port
    raise TensorBoardProblem(f"{_ports(ports[0], ports[-1])} in use on {HOST}: choose another one with --port")


def _ports(first: int, last: int) -> str:
    return f"the port {first} is" if first == last else f"all ports from {first} to {last} are"


@attrs.define
class TensorBoardServer:
    """TensorBoard for one directory, from ``start`` to ``stop``.

    TensorBoard has no login, and other users may have accounts on this machine. Therefore, TensorBoard serves a secret
    path, which only this process knows.

    :param private: the command's directory, which TensorBoard removes if the command is killed. It contains
        ``directory`` with the data, and ``own`` for TensorBoard's own files.
    """

    _private: Path
    _directory: Path
    _own: Path
    _port: int
    _title: str
    _path: str = attrs.field(init=False, factory=lambda: f"/{secrets.token_urlsafe(16)}", repr=False)
    _process: subprocess.Popen[bytes] | None = attrs.field(init=False, default=None)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}{self._path}/"

    def start(self) -> None:
        program = files("tony_provider.runtime.event_files") / "show_tensorboard.py"
        environment = {
            **child_environment(),  # TensorBoard and its plugins need no secret of this process
            "PYTHONPATH": absolute_entries(os.environ.get("PYTHONPATH", "")),
            contract.ENV_TENSORBOARD_DIR: str(self._directory),
            contract.ENV_TENSORBOARD_PATH: self._path,
            contract.ENV_PORT: str(self._port),
            contract.ENV_JOB_NAME: self._title,
            "TMPDIR": str(self._own),  # TensorBoard writes a file there that all users could read in /tmp
        }
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(program), str(self._private)],
                cwd=self._own,
                env=environment,
                stdin=subprocess.PIPE,  # TensorBoard ends when this pipe closes, even after SIGKILL of this command
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only this command, which then ends TensorBoard
            )

    @property
    def answers(self) -> bool:
        """Whether TensorBoard shows its page. Raises TensorBoardProblem if it has ended."""
        self.expect_running()
        connection = http.client.HTTPConnection(HOST, self._port, timeout=_ANSWER_SECONDS)
        try:
            connection.connect()
            if peer_users(connection.sock) - {os.getuid()}:  # checked before sending the secret path
                raise TensorBoardProblem(f"another user of this machine uses port {self._port}; choose another port")
            connection.request("GET", f"{self._path}/")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def expect_running(self) -> None:
        """If TensorBoard has ended, raise TensorBoardProblem with its output."""
        code = self._process.poll() if self._process is not None else None
        if code is not None:
            said = replaced(self._output.read_bytes()[-_SAID:].decode("utf-8", "replace")).strip()
            raise TensorBoardProblem(f"TensorBoard has ended with exit code {code}:\n{said}")

    def stop(self) -> None:
        """End TensorBoard. Idempotent."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_SERVER_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    @property
    def _output(self) -> Path:
        return self._own / "output.log"


_PERIOD = 0.2  # seconds between two checks
_START_SECONDS = 60.0  # time limit for TensorBoard to start and answer
_SHORTEST_REFRESH = 1.0  # minimum seconds of --refresh


@command
def tensorboard(args: Namespace) -> None:
    """Copy event files and show them until Ctrl-C or a signal. Removes the local copies at the end."""
    refresh = max(_SHORTEST_REFRESH, seconds_of("--refresh", args.refresh))
    size_limit = bytes_of("--most", args.most)
    expect_tensorboard()
    port = choose_port(args.port)
    hook = hook_of(args)
    with ExitStack() as stack:
        stack.callback(hook.close)
        jobs = _jobs(hook, args)
        over = stack.enter_context(until_interrupted())
        private = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tony-tensorboard-")))
        curves, own = private / "curves", private / "own"
        curves.mkdir()
        own.mkdir()
        sources = {uri: curves / label for uri, label in jobs.labels.items()}
        copy = EventFileCopy(hook, sources, jobs.trainings, refresh=refresh, size_limit=size_limit)
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
    """The directories of event files to show, and the trainings that write these files."""

    labels: dict[str, str]  # display name of each directory of event files, by the URI of the directory
    trainings: list[Identity]


def _jobs(hook: TonyHook, args: Namespace) -> _Jobs:
    """Return the jobs to show. Applications of the same checkpoint chain have the same curves, and appear once."""
    labels: dict[str, str] = {}
    trainings = []
    for job, _ in jobs_of(hook, args):
        source = expect_directory(job).event_files()
        labels.setdefault(source.uri, source.label)
        trainings.append(job.training)
    return _Jobs(labels, trainings)


def _first_look(copy: EventFileCopy, sources: Mapping[str, Path], over: threading.Event) -> bool:
    """Wait for the first copy, and print the result. Return False if the user ends the command first.

    Raises NotFound if there is no data, and no running training that could write any. Raises the error that prevents
    reading the store.
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
            f"there are no event files in {', '.join(sources)}: programs write them to the directory that "
            'TONY_TENSORBOARD_DIR names; see the guide "TensorBoard"'
        )
    for directory, (copied, most) in held.items():
        say(f"  {directory.name}: {count(copied, 'file')}, {size(most)}" if copied else f"  {directory.name}: none yet")
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
