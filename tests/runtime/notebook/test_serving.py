"""A notebook from its start to its end, with a server that stands for Jupyter. Jupyter itself: tests/jobs."""

from __future__ import annotations

import errno
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.files import files_below
from tests.hadoop.ports import free_ports
from tests.waiting import until
from tony_provider.runtime.notebook import jupyter, serving
from tony_provider.runtime.notebook.jupyter import Jupyter
from tony_provider.runtime.notebook.kept_work import KeptWork, unpack_work
from tony_provider.runtime.notebook.serving import CANNOT_RUN, TOLD_TO_END, NotebookOptions, Serving, main
from tony_provider.runtime.sdk import tony_sdk

ROOT = Path(__file__).parents[3]
BUSY = json.dumps([{"id": "k", "execution_state": "busy", "last_activity": "now"}])
IDLE = json.dumps([{"id": "k", "execution_state": "idle", "last_activity": "now"}])


@attrs.frozen
class Notebook:
    folder: Path
    serving: list[tuple[Serving, Future[int]]] = attrs.field(factory=list)

    def serve(self, idle: float = 0.0, until: float = 0.0) -> tuple[Serving, Future[int]]:
        work = KeptWork(self.folder / "notebook", self.folder / "checkpoints", 1 << 20)
        work.restore(None)
        server = Jupyter("tests.runtime.notebook.stand_in", work.directory, free_ports(1)[0])
        one = Serving(server, work, NotebookOptions(idle, until, 1 << 20))
        pool = ThreadPoolExecutor(1)
        future = pool.submit(one.run)
        pool.shutdown(wait=False)
        self.serving.append((one, future))
        return one, future

    def close(self) -> None:
        for one, future in self.serving:
            one.stop_requested.set()
            future.result(60)

    def put(self, name: str, text: str) -> None:
        (self.folder / f"{name}.new").write_text(text)
        (self.folder / f"{name}.new").rename(self.folder / name)

    @property
    def asked(self) -> list[str]:
        file = self.folder / "asked"
        return file.read_text().splitlines() if file.exists() else []

    def until_asked(self, times: int) -> None:
        until(lambda: len([line for line in self.asked if line.startswith("/api/kernels")]) >= times, "its questions")

    @property
    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found

    @property
    def ended(self) -> str:
        return str(self.result["ended"])

    @property
    def kept(self) -> list[str]:
        newest = max((self.folder / "checkpoints").glob("work-*.tar"), key=lambda path: path.stat().st_mtime_ns)
        found = self.folder / "found"
        found.mkdir()
        unpack_work(newest, found)
        return files_below(found)


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    (tmp_path / "checkpoints").mkdir()
    monkeypatch.setitem(sys.modules, "tony_sdk", tony_sdk)
    places = {
        "TONY_CHECKPOINT_DIR": "checkpoints", "TONY_RESULT_FILE": "result.json", "TONY_CHECKPOINT_REQUEST": "request",
        "KERNELS": "kernels", "END": "end", "ASKED": "asked",
    }  # fmt: skip
    for name, place in places.items():
        monkeypatch.setenv(name, str(tmp_path / place))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("JUPYTER_TOKEN", "a-token-4711")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("TONY_RESUME_STEP", raising=False)
    monkeypatch.setattr(serving, "_PERIOD", 0.1)
    made = Notebook(tmp_path)
    made.put("kernels", IDLE)
    yield made
    made.close()


def test_it_ends_by_idleness_with_its_work(notebook: Notebook) -> None:
    _, code = notebook.serve(idle=2.0)
    (notebook.folder / "notebook" / "a.ipynb").write_text("first")
    assert code.result(60) == 0
    assert notebook.ended.startswith("ended: no activity for ")
    assert notebook.kept == ["a.ipynb"]
    assert (notebook.result["kept"], notebook.result["not_kept"]) == (1, "")
    assert set(notebook.asked) == {"/api/kernels True", "/api/terminals True"}


def test_its_result_says_what_could_not_be_kept(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tony_sdk, "commit_checkpoint", full)
    _, code = notebook.serve()
    (notebook.folder / "notebook" / "a.ipynb").write_text("first")
    notebook.put("end", "0")
    assert code.result(60) == 0
    assert notebook.result["kept"] is None
    assert notebook.result["not_kept"] == "the work could not be kept: [Errno 28] No space left on device"


def test_its_result_says_what_had_no_room(notebook: Notebook) -> None:
    _, code = notebook.serve()
    (notebook.folder / "notebook" / "data.parquet").write_bytes(bytes(2 << 20))
    notebook.put("end", "0")
    assert code.result(60) == 0
    assert notebook.result["not_kept"] == "NOT kept, because of the size limit: data.parquet"


def test_a_busy_kernel_keeps_it_and_a_request_has_its_work_kept(notebook: Notebook) -> None:
    notebook.put("kernels", BUSY)
    one, code = notebook.serve(idle=0.4)
    notebook.until_asked(20)
    assert not code.done()
    (notebook.folder / "notebook" / "a.ipynb").write_text("first")
    notebook.put("request", "somebody")
    until(lambda: list((notebook.folder / "checkpoints").glob("*.tony.json")), "the work to be kept")
    until(lambda: not (notebook.folder / "request").exists(), "the request to be taken")
    one.stop_requested.set()
    assert code.result(60) == TOLD_TO_END
    assert notebook.kept == ["a.ipynb"]
    assert not (notebook.folder / "result.json").exists()


def test_it_ends_when_its_time_is_over(notebook: Notebook) -> None:
    _, code = notebook.serve(until=time.time() - 1)
    assert code.result(60) == 0
    assert notebook.ended == "ended: the end time is reached"


@pytest.mark.parametrize(("said", "code"), [("0", 0), ("3", 3)])
def test_a_server_that_ends_by_itself(notebook: Notebook, said: str, code: int) -> None:
    _, future = notebook.serve()
    notebook.until_asked(1)
    (notebook.folder / "notebook" / "a.ipynb").write_text("first")
    notebook.put("end", said)
    assert future.result(60) == code
    assert notebook.kept == ["a.ipynb"]
    if not code:
        assert notebook.ended == "ended by the user"


def test_without_a_token_a_server_or_a_kernel_it_says_what_is_missing(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = NotebookOptions(1.0, 0.0, 1).arguments.split()

    def says(words: str) -> None:
        assert main(arguments) == CANNOT_RUN
        error = capfd.readouterr().err.splitlines()[-1]
        assert error.startswith("cannot execute a notebook: ")
        assert words in error

    says("has no Jupyter server: use a python_env with jupyterlab and ipykernel")  # as this environment
    has: Callable[[str], bool] = {"jupyter_server", "jupyterlab", "jupyterlab.labapp"}.__contains__
    monkeypatch.setattr(jupyter, "_has", has)
    says("cannot list its kernels")
    monkeypatch.setattr(jupyter, "_KERNELS", "print('[]')")
    says("has a Jupyter server but no kernel")
    monkeypatch.delenv("JUPYTER_TOKEN")
    says("the secret JUPYTER_TOKEN is missing")
