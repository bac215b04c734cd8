"""Files that real processes have open for writing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.waiting import until
from tony_provider.runtime.executor import processes
from tony_provider.runtime.executor.processes import Writers, writers_of

_PROGRAM = """
import mmap, os, sys
held = []
{code}
print("ready", flush=True)
sys.stdin.read()
"""

Start = Callable[[str], int]


def paths(directory: Path, pids: Sequence[int]) -> set[str]:
    return set(writers_of(directory, pids))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A checkpoint directory with a file."""
    directory = tmp_path / "checkpoints"
    (directory / "step 1").mkdir(parents=True)
    (directory / "step 1" / "model.bin").write_bytes(bytes(10_000))
    return directory


@pytest.fixture
def start(directory: Path) -> Iterator[Start]:
    """Start a process in the directory that runs some code and then waits. Returns its PID."""
    with ExitStack() as stack:

        def begin(code: str) -> int:
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-I", "-c", _PROGRAM.format(code=code)],
                    cwd=directory,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            stack.callback(process.kill)
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
            return process.pid

        yield begin


@pytest.mark.parametrize("mode", ["wb", "ab", "r+b", "xb"])
def test_a_file_that_is_open_for_writing(directory: Path, start: Start, mode: str) -> None:
    path = "new" if mode == "xb" else "step 1/model.bin"
    assert paths(directory, [start(f"held.append(open({path!r}, {mode!r}))")]) == {path}


@pytest.mark.parametrize(
    "code",
    [
        "held.append(open('step 1/model.bin', 'rb'))",
        "held.append(os.open('.', os.O_RDONLY))",
        "held.append(mmap.mmap(os.open('step 1/model.bin', os.O_RDONLY), 0, access=mmap.ACCESS_READ))",
        "held.append(mmap.mmap(os.open('step 1/model.bin', os.O_RDONLY), 0, access=mmap.ACCESS_COPY))",
        "open('step 1/model.bin', 'ab').close()",
        "held.append(open('../outside', 'wb'))",
        "os.mkdir('../checkpoints-2'); held.append(open('../checkpoints-2/model.bin', 'wb'))",
    ],
    ids=["reading", "directory", "mapped for reading", "mapped private", "closed", "outside", "like-named directory"],
)
def test_other_open_files_do_not_count(directory: Path, start: Start, code: str) -> None:
    assert paths(directory, [start(code)]) == set()


def test_a_file_that_is_mapped_shared_and_writable(directory: Path, start: Start) -> None:
    code = """
file = os.open('step 1/model.bin', os.O_RDWR)
held.append(mmap.mmap(file, 0, flags=mmap.MAP_SHARED))
os.close(file)
for number in map(int, os.listdir('/proc/self/fd')):  # mmap keeps a descriptor of its own
    if number > 2:
        try:
            os.close(number)
        except OSError:
            pass
"""
    pid = start(code)
    assert not [path for path in Path(f"/proc/{pid}/fd").iterdir() if path.readlink().is_relative_to(directory)]
    assert paths(directory, [pid]) == {"step 1/model.bin"}


def test_a_deleted_file_keeps_its_name(directory: Path, start: Start) -> None:
    """Its process may still write into it, and give it its name back."""
    pid = start("held.append(open('step 1/model.bin', 'ab')); os.unlink('step 1/model.bin')")
    assert paths(directory, [pid]) == {"step 1/model.bin"}


def test_a_name_may_end_like_that_of_a_deleted_file(directory: Path, start: Start) -> None:
    assert paths(directory, [start("held.append(open('a (deleted) b', 'wb'))")]) == {"a (deleted) b"}


def test_files_of_all_processes_are_found(directory: Path, start: Start) -> None:
    pids = [start(f"held.append(open('file-{number}', 'wb'))") for number in range(2)]
    assert paths(directory, pids) == {"file-0", "file-1"}
    assert paths(directory, pids[1:]) == {"file-1"}


def test_processes_that_have_ended_are_skipped(directory: Path, start: Start) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    pid = start("held.append(open('file', 'wb'))")
    assert paths(directory, [ended.pid, pid]) == {"file"}


def test_a_directory_that_is_reached_by_a_link(directory: Path, start: Start) -> None:
    link = directory.parent / "link"
    link.symlink_to(directory)
    assert paths(link, [start("held.append(open('file', 'wb'))")]) == {"file"}


# ---- from look to look ---------------------------------------------------------------------------------------------


def look(writers: Writers, now: float) -> set[str]:
    return writers.scan(processes.descendants(os.getpid()), now)


def test_a_file_whose_writer_was_killed_counts_for_some_time(directory: Path, start: Start) -> None:
    """Also while other processes of the container live: a launcher may notice the death seconds later."""
    writers = Writers(directory)
    start("pass")
    pid = start("held.append(open('half', 'wb'))")
    assert look(writers, 0.0) == {"half"}
    os.kill(pid, signal.SIGKILL)
    until(lambda: processes.descendants(os.getpid())[pid].zombie, "the end of the writer")
    assert look(writers, 1.5) == {"half"}
    assert look(writers, 31.4) == {"half"}
    assert look(writers, 31.5) == set()


def test_a_file_that_its_writer_has_closed_does_not_count(directory: Path, start: Start) -> None:
    writers = Writers(directory)
    start("import threading; file = open('whole', 'wb'); threading.Timer(1.0, file.close).start()")
    assert look(writers, 0.0) == {"whole"}
    until(lambda: not look(writers, 1.0), "the end of the write")


def test_an_abandoned_file_that_another_process_writes_again(directory: Path, start: Start) -> None:
    writers = Writers(directory)
    pid = start("held.append(open('file', 'wb'))")
    assert look(writers, 0.0) == {"file"}
    os.kill(pid, signal.SIGKILL)
    until(lambda: processes.descendants(os.getpid())[pid].zombie, "the end of the writer")
    assert look(writers, 1.0) == {"file"}
    start("import threading; file = open('file', 'wb'); threading.Timer(1.0, file.close).start()")
    assert look(writers, 2.0) == {"file"}
    until(lambda: not look(writers, 3.0), "the end of the write")
