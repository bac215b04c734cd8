"""``airflow tony tensorboard``: real jobs' event files, drawn by a real TensorBoard."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import pytest
import requests
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from tests.cli.conftest import Said, Tony
from tests.hooks.jobs import processes_with
from tests.owners import open_after, own
from tests.runtime.history.events import leave_events
from tests.waiting import until
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.training.checkpoint_chains import CheckpointChains, new_chain
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage.local import local_path

DAG: dict[str, Any] = {"dag_id": "clicks", "task_id": "train"}
MORNINGS = ("scheduled__2026-01-05T00:00:00+00:00", "scheduled__2026-01-06T00:00:00+00:00")
SECONDS = 20
WRITER = str(Path(__file__).parents[1] / "jobs" / "writer.py")


@attrs.frozen
class Written:
    """A job that writes a curve, and writes its last point once ``go`` is there."""

    hook: TonyHook
    id: str
    go: Path

    @classmethod
    def of(cls, hook: TonyHook, run_id: str, go: Path, last: int) -> Written:
        identity = hook.identity(**DAG, run_id=run_id)
        spec = {
            "framework": "standalone",
            "am": {"memory": "256MiB"},
            "env": {"GO": str(go)},
            "files": [WRITER],
            "python_env": sys.prefix,
            "tasks": {"worker": {"memory": "256MiB", "command": f"python writer.py 1 {last}"}},
        }
        request = SubmissionRequest(parse_job(spec), identity, labels={**DAG, "run_id": run_id})
        return cls(hook, hook.submit(request).application_id, go)

    def ended(self) -> None:
        until(lambda: (found := self.hook.application(self.id)) and found.is_final, f"the end of {self.id}")


@attrs.frozen
class Drawing:
    """What a browser gets of TensorBoard."""

    url: str

    def steps(self) -> dict[str, list[int]]:
        """Of the loss, by run."""
        runs = self._get("tags")
        return {run: [point[1] for point in self._get("scalars", run=run, tag="loss")] for run in runs}

    def until_steps(self, expected: dict[str, list[int]]) -> None:
        until(lambda: self.steps() == expected, lambda: f"{expected}, there is {self.steps()}")

    def _get(self, what: str, **params: str) -> Any:
        answer = requests.get(f"{self.url}data/plugin/scalars/{what}", params=params, timeout=SECONDS)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command makes its directory."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


@attrs.frozen
class Desk:
    """A user with a browser, who presses Ctrl-C when the curves were looked at."""

    tony: Tony
    temporary: Path
    monkeypatch: pytest.MonkeyPatch

    def draws(self, look: Callable[[Drawing], None], *arguments: str) -> Said:
        """The command, and ``look`` in its browser meanwhile."""
        problems: list[BaseException] = []

        def user(url: str) -> None:
            try:
                look(Drawing(url))
            except BaseException as error:  # noqa: BLE001 - told below
                problems.append(error)
            finally:
                os.kill(os.getpid(), signal.SIGINT)

        self.monkeypatch.setattr(webbrowser, "open", lambda url: threading.Thread(target=user, args=[url]).start())
        said = self.tony("tensorboard", *arguments, "--open", "--refresh", "1s")
        assert not problems, (problems, said)
        self.left_nothing()
        return said

    def left_nothing(self) -> None:
        assert list(self.temporary.iterdir()) == []
        assert processes_with(f"{self.temporary}/tony-tensorboard-") == []


@pytest.fixture
def desk(tony: Tony, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    before = signal.getsignal(signal.SIGINT)
    yield Desk(tony, temporary, monkeypatch)
    assert signal.getsignal(signal.SIGINT) is before


@attrs.frozen
class Kept:
    """What an application that the cluster has forgotten has left on the store: event files, and where it came from."""

    hook: TonyHook
    id: str
    run_id: str

    @property
    def identity(self) -> Identity:
        return self.hook.identity(**DAG, run_id=self.run_id)

    @property
    def files(self) -> Path:
        """The directory of its event files, on the local store."""
        return local_path(f"{self.hook.layout.chain_dir(self.identity, 1)}/tensorboard")

    @property
    def name(self) -> str:
        return f"clicks.train-{self.run_id[11:21]}-{self.id}"

    def write(self, task: str, steps: range) -> None:
        directory = self.files / task
        directory.mkdir(parents=True, exist_ok=True)
        writing = EventFileWriter(str(directory))
        for step in steps:
            value = Summary.Value(tag="loss", simple_value=10 / step)
            writing.add_event(Event(step=step, wall_time=step, summary=Summary(value=[value])))
        writing.close()

    def leave(self) -> None:
        directory = self.hook.job(self.id, self.identity).directory
        first = {"event": "begun", "labels": {**DAG, "run_id": self.run_id}}
        leave_events(local_path(directory), first)
        chains = CheckpointChains(self.hook.storage(), self.hook.layout, self.identity)
        own(chains, open_after(chains, None, new_chain()), self.id)


@pytest.fixture
def kept(local: TonyHook) -> list[Kept]:
    """Of two mornings, with curves of 3 steps."""
    found = [Kept(local, f"application_1700000000000_000{n}", run_id) for n, run_id in enumerate(MORNINGS)]
    for each in found:
        each.leave()
        each.write("worker-0", range(1, 4))
    return found


def test_tensorboard_and_its_plugins_get_no_secret(
    desk: Desk, kept: list[Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", "hush-hush")
    found: list[bytes] = []

    def look(drawing: Drawing) -> None:
        pids = processes_with(f"{desk.temporary}/tony-tensorboard-")
        found.extend(Path(f"/proc/{pid}/environ").read_bytes() for pid in pids if pid != os.getpid())

    assert desk.draws(look, kept[0].id).code == 0
    assert [b"hush-hush" in each for each in found] == [False] * len(found) != []


def test_curves_of_jobs_that_have_ended_are_drawn_side_by_side_until_ctrl_c(desk: Desk, kept: list[Kept]) -> None:
    first, second = kept

    def look(drawing: Drawing) -> None:
        curves = {f"{each.name}/worker-0": [1, 2, 3] for each in kept}
        drawing.until_steps(curves)
        without_secret = f"http://{urlsplit(drawing.url).netloc}/data/plugin/scalars/tags"
        assert requests.get(without_secret, timeout=SECONDS).status_code == 404

    by_run = ("--dag-id", "clicks", "--task-id", "train", "--run-id", second.run_id)
    said = desk.draws(look, first.id, *by_run, "--tag", first.identity.tag)
    assert said.code == 0, said.error
    assert said.out.count(first.name) == 1  # though it is named twice
    assert f"{second.name}: 1 file, " in said.out


@pytest.mark.long
def test_jobs_that_run_and_that_have_ended_are_drawn_side_by_side(desk: Desk, local: TonyHook, tmp_path: Path) -> None:
    go = tmp_path / "go"
    runs = Written.of(local, MORNINGS[0], go, 4)
    at_once = tmp_path / "at-once"
    at_once.touch()
    over = Written.of(local, MORNINGS[1], at_once, 3)
    over.ended()
    names = [f"clicks.train-2026-01-05-{runs.id}", f"clicks.train-2026-01-06-{over.id}"]

    def look(drawing: Drawing) -> None:
        drawing.until_steps({f"{names[0]}/worker-0": [1, 2, 3], f"{names[1]}/worker-0": [1, 2, 3]})
        go.touch()
        drawing.until_steps({f"{names[0]}/worker-0": [1, 2, 3, 4], f"{names[1]}/worker-0": [1, 2, 3]})

    said = desk.draws(look, runs.id, "--dag-id", "clicks", "--task-id", "train", "--run-id", MORNINGS[1])
    assert said.code == 0, said.error
    assert f"{names[1]}: 1 file" in said.out
    runs.ended()


def test_what_cannot_be_drawn_is_said_and_nothing_is_started(desk: Desk, kept: list[Kept], local: TonyHook) -> None:
    empty = Kept(local, "application_1700000000000_0009", "scheduled__2026-01-07T00:00:00+00:00")
    empty.leave()
    none = desk.tony("tensorboard", empty.id)
    assert none.code == 1
    assert f"there are no event files in {local.layout.chain_dir(empty.identity, 1)}" in none.error
    assert "TONY_TENSORBOARD_DIR" in none.error
    for arguments, problem in (
        ((), "name a job: by its application ID"),
        (("--dag-id", "clicks", "--run-id", "x"), "by both --dag-id and --task-id"),
        (
            ("--dag-id", "clicks", "--task-id", "train", "--run-id", "x"),
            "no such job; known jobs of this task: ",
        ),
        ((kept[0].id, "--port", "99999"), "99999 is not a port"),
        ((kept[0].id, "--most", "much"), "--most: not an amount of memory"),
        ((kept[0].id, "--refresh", "soon"), "--refresh: not a time"),
        ((kept[0].id, "--most", "1MiB", "--tag", "tony-nothing"), "knows of tony-nothing"),
    ):
        said = desk.tony("tensorboard", *arguments)
        assert said.code == 1
        assert problem in said.error
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = desk.tony("tensorboard", kept[0].id, "--port", str(port))
        assert f"the port {port} is in use on 127.0.0.1" in said.error
    desk.left_nothing()


def test_tensorboard_that_is_not_installed_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = desk.tony("tensorboard", "application_1700000000000_0001")
    assert f"the package tensorboard is not installed here: {sys.executable} -m pip install tensorboard" in said.error


def test_a_tensorboard_that_cannot_start_is_told_with_what_it_said(
    desk: Desk, kept: list[Kept], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken" / "tensorboard").mkdir(parents=True)
    (tmp_path / "broken" / "tensorboard" / "__init__.py").write_text("raise ImportError('it does not suit protobuf')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/broken:{os.environ.get('PYTHONPATH', '')}")
    said = desk.tony("tensorboard", kept[0].id)
    assert said.code == 1
    assert "TensorBoard has ended with exit code 126" in said.error
    assert "it does not suit protobuf" in said.error
    desk.left_nothing()


@pytest.mark.long
def test_a_closed_terminal_ends_it_with_all_that_it_has_made(kept: list[Kept], temporary: Path) -> None:
    """As a user starts it, and as a session ends: SIGHUP, and SIGTERM right after it."""
    command = [sys.executable, "-m", "airflow", "tony", "tensorboard", kept[0].id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = next(line for line in process.stdout if line.startswith("TensorBoard: ")).split()[1]
        Drawing(url).until_steps({f"{kept[0].name}/worker-0": [1, 2, 3]})
        assert processes_with(f"{temporary}/tony-tensorboard-")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert list(temporary.iterdir()) == []
    assert processes_with(f"{temporary}/tony-tensorboard-") == []


@pytest.mark.long
def test_a_command_that_is_killed_leaves_nothing_either(kept: list[Kept], temporary: Path) -> None:
    command = [sys.executable, "-m", "airflow", "tony", "tensorboard", kept[0].id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(line.startswith("TensorBoard: ") for line in process.stdout)
        process.kill()
    until(lambda: not processes_with(f"{temporary}/tony-tensorboard-"), "its end")
    until(lambda: not list(temporary.iterdir()), "the end of its directory")
