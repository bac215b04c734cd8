from __future__ import annotations

import errno
import itertools
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.executor.conftest import Launch
from tests.runtime.executor.containers import job
from tony_provider.runtime.executor import output
from tony_provider.runtime.executor.output import TAIL_LIMIT, TAIL_LINES, CappedFile, Tail
from tony_provider.runtime.jobspec.model import LogSpec, Memory
from tony_provider.runtime.protocol.http_messages import stored_log
from tony_provider.runtime.storage import FileStatus, LocalStorage


def lines(count: int, start: int = 0) -> bytes:
    return b"".join(b"line %06d\n" % i for i in range(start, start + count))


def test_a_file_that_fits_is_kept_whole(tmp_path: Path) -> None:
    file = CappedFile(tmp_path / "out", 1000)
    file.write(lines(50))
    file.write(lines(50, 50))
    file.close()
    assert file.last(10_000) == lines(100)
    assert file.last(120) == b"[tony] 90 earlier lines (1080 bytes) were dropped\n" + lines(10, 90)


def test_what_is_dropped_is_said(tmp_path: Path) -> None:
    file = CappedFile(tmp_path / "out", 1200)
    for start in range(0, 1000, 10):
        file.write(lines(10, start))
    file.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.1"]
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 1300
    before, now = (tmp_path / "out.1").read_bytes(), (tmp_path / "out").read_bytes()
    note, _, rest = now.partition(b"\n")
    assert note == b"[tony] %d earlier lines were dropped" % file.dropped
    kept = before.partition(b"\n")[2] + rest
    assert kept == lines(1000 - file.dropped, file.dropped)


@given(st.lists(st.binary(max_size=60), max_size=60), st.integers(1, 200))
def test_the_last_bytes_are_those_written_last(
    tmp_path_factory: pytest.TempPathFactory, writes: list[bytes], limit: int
) -> None:
    file = CappedFile(tmp_path_factory.mktemp("capped") / "out", 100, announce=False)
    for data in writes:
        file.write(data)
    file.close()
    last = file.last(limit)
    if last.startswith(b"[tony] "):
        last = last.partition(b"\n")[2]
    assert len(last) <= limit
    assert b"".join(writes).endswith(last)
    assert file.tail(limit) == last


def test_a_full_disk_costs_lines_only(tmp_path: Path) -> None:
    """On a file that may not grow, which is as near as a test comes to a full disk without mounting one."""
    program = (
        "import resource, signal, sys; from pathlib import Path;"
        "from tony_provider.runtime.executor.output import CappedFile;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
        "file = CappedFile(Path(sys.argv[1]), 10_000);"
        "[file.write(b'x' * 99 + b'\\n') for _ in range(30)];"
        "print(file.dropped)"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "out"], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 20
    assert done.stderr.count(os.strerror(errno.EFBIG)) == 1


@given(st.lists(st.binary(max_size=300), max_size=100))
def test_the_tail_is_bounded_whatever_comes(pieces: list[bytes]) -> None:
    tail = Tail()
    for piece in pieces:
        tail.add(piece)
    text = tail.text()
    assert len(text.encode()) <= TAIL_LIMIT
    assert text.count("\n") < TAIL_LINES


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=20), max_size=60),
    st.integers(1, 7),
)
def test_the_tail_holds_the_last_lines(texts: list[str], size: int) -> None:
    data = "\n".join(texts).encode()
    tail = Tail()
    for start in range(0, len(data), size):
        tail.add(data[start : start + size])
    assert tail.text() == "\n".join("\n".join(texts).split("\n")[-TAIL_LINES:])


def test_of_a_progress_bar_the_last_state_shows() -> None:
    tail = Tail()
    for step in range(1000):
        tail.add(b"\r%3d%% of the epoch" % (step // 10))
    tail.add(b"\nTraceback\n")
    assert tail.text() == " 99% of the epoch\nTraceback"
    tail.add(b"1/29 loss: 2.4\b\b\b\b\r2/29 loss: 2.3\b\b\b\b")  # as Keras draws it, and as a kill leaves it
    assert tail.text().endswith("\n2/29 loss: 2.3")


async def test_files_of_a_real_process_are_capped(launch: Launch) -> None:
    limit = 8 << 20  # a quarter of the job's
    count = 2 * limit // 100 + 250_000
    program = f"line = 'x' * 99; [print(line) for _ in range({count})]"
    spec = job(f'env -u PYTHONUNBUFFERED python -c "{program}"', logs=LogSpec(max_size=Memory(32)))
    running = await launch(spec)
    await running.begin()
    exited = await running.master.first("exited")
    assert (exited.exit_code, exited.output_problem) == (0, "")
    assert await running.end() == 0
    files = [running.container.log_dir / name for name in ("task.out", "task.out.1")]
    assert all(file.stat().st_size <= limit + 100 for file in files)
    whole = files[1].read_text().count("x\n") + files[0].read_text().count("x\n")
    assert files[0].read_text().splitlines()[0] == f"[tony] {count - whole} earlier lines were dropped"
    kept = running.log
    assert output.KEPT_LIMIT - 200 < len(kept) < output.KEPT_LIMIT + 200
    assert kept.startswith("[tony] ")


def test_a_long_line_is_cut_and_not_lost(tmp_path: Path) -> None:
    file = CappedFile(tmp_path / "out", 10**6)
    file.write(b"\rstep of a progress bar" * 20_000)
    file.write(b"\n")
    file.close()
    assert file.last(200_000).endswith(b"\rstep of a progress bar" * 8_000 + b"\n")


def test_the_tail_of_nothing_is_empty(tmp_path: Path) -> None:
    assert CappedFile(tmp_path / "out", 100).tail(10) == b""


def test_the_tail_of_a_line_that_is_longer_is_its_end(tmp_path: Path) -> None:
    file = CappedFile(tmp_path / "out", 10**6)
    file.write(b"start\n" + b"x" * 100 + b"end\n")
    assert file.tail(10) == b"xxxxxxend\n"
    file.close()


@given(
    st.lists(st.binary(max_size=60).map(lambda data: data.replace(b"[", b"") + b"\n"), max_size=60),
    st.integers(0, 2000),
    st.integers(1, 200),
)
def test_a_piece_is_known_by_what_was_printed_before_it(
    tmp_path_factory: pytest.TempPathFactory, writes: list[bytes], after: int, limit: int
) -> None:
    """While it is written, and of what was kept of it."""
    path = tmp_path_factory.mktemp("capped") / "out"
    file, whole = CappedFile(path, 100, announce=False), b"".join(writes)
    for data in writes:
        file.write(data)
    kept = path.with_name("kept.log")
    kept.write_bytes(file.last(150))
    file.close()
    for piece in (
        file.since(after, limit),
        stored_log(LocalStorage(), str(kept.parent), kept.name).after(after, limit),
    ):
        assert piece.data == whole[piece.start : piece.end]
        assert piece.end == len(whole)
        assert len(piece.data) <= limit
        assert piece.start >= min(after, len(whole))
        if piece.start > after and piece.data:  # something is missing
            assert whole[piece.start - 1 : piece.start] == b"\n"


@pytest.mark.parametrize(
    "first",
    [b"[tony] earlier lines (999999999999 bytes) were dropped\n", b"[tony] 7 earlier lines (1 bytes) were dropped\n"],
)
@pytest.mark.parametrize("count", [1, 30])
def test_a_program_cannot_say_that_its_lines_were_dropped(tmp_path: Path, first: bytes, count: int) -> None:
    file, whole = CappedFile(tmp_path / "out", 500, announce=False), first + lines(count)
    file.write(whole)
    (tmp_path / "kept").write_bytes(file.last(200))
    file.close()
    for after in (0, len(first), len(whole)):
        piece = stored_log(LocalStorage(), str(tmp_path), "kept").after(after, 1000)
        assert piece.data == whole[piece.start :]
        assert piece.start == after or len(whole) > 200


def test_a_secret_that_is_cut_where_a_kept_log_begins_is_masked(tmp_path: Path) -> None:
    """As in a line of a progress bar, longer than what is kept."""
    file = CappedFile(tmp_path / "out", 10**6)
    file.write(b"open-sesame" * 30_000 + b"\n")
    file.close()
    for limit in range(100_000, 100_011):
        last = file.last(limit, ["open-sesame"])
        assert last.startswith(b"[tony] ")
        assert not any(half in last for half in (b"open", b"sesame", b"n-ses"))


@pytest.mark.parametrize("size", [50, 5])
def test_of_a_kept_log_that_grows_meanwhile_no_more_is_read(size: int, tmp_path: Path) -> None:
    """Which bytes there are is asked first: a job may put another file there by the time they are read."""
    log = tmp_path / "worker-0.log"
    log.write_bytes(b"x" * size)

    class Growing(LocalStorage):
        def status(self, uri: str) -> FileStatus:
            found = super().status(uri)
            log.write_bytes(b"y" * 1_000_000)
            return found

    assert len(stored_log(Growing(), str(tmp_path), log.name).after(0, 10).data) <= 10


def test_the_note_of_a_kept_log_is_not_masked(tmp_path: Path) -> None:
    file = CappedFile(tmp_path / "out", 500)
    file.write(lines(20))
    (tmp_path / "kept").write_bytes(file.last(48, ["lines", "000019"]))
    file.close()
    assert stored_log(LocalStorage(), str(tmp_path), "kept").after(12 * 19, 100).data == b"line ******\n"


def test_on_a_crowded_disk_only_the_last_lines_stay(tmp_path: Path) -> None:
    crowded = ""
    file = CappedFile(tmp_path / "out", 4 << 20, crowded=lambda directory, wanted: crowded or None)
    count, piece = 300_000, 3_000
    for start in range(0, count, piece):
        if start == 240_000:
            assert (file.problem, file.dropped) == ("", 0)
            crowded = "the disk is nearly full"
        file.write(lines(piece, start))
    file.close()
    assert file.problem == crowded
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2 * (256 << 10) + 100
    last = file.last(10 << 20)
    assert last.startswith(b"[tony] %d earlier lines (" % file.dropped)
    written = b"".join(path.read_bytes() for path in (tmp_path / "out.1", tmp_path / "out"))
    kept = [line for line in written.splitlines() if line.startswith(b"line")]
    assert kept == lines(count).splitlines()[file.dropped :]


def test_small_files_are_no_burden_to_a_crowded_disk(tmp_path: Path) -> None:
    file = CappedFile(tmp_path / "out", 4 << 20, crowded=lambda directory, wanted: "the disk is nearly full")
    file.write(lines(1000))
    file.close()
    assert file.problem == ""
    assert file.last(10 << 20) == lines(1000)


def test_the_end_is_read_whole_while_another_thread_writes(tmp_path: Path) -> None:
    """A killed executor reads its last words while user processes print theirs."""
    file, over = CappedFile(tmp_path / "out", 400), threading.Event()

    def write() -> None:
        for number in itertools.count():
            file.write(b"%08d\n" % number)
            if over.is_set():
                return

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        for _ in range(2000):
            *_, last = file.last(90).splitlines() or [b""]
            assert re.fullmatch(rb"\d{8}|", last)
            assert b"(-" not in file.last(90)
        over.set()
    writing.result()


def test_of_a_long_output_only_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = CappedFile(tmp_path / "out", 1 << 20)
    file.write(lines(50_000))
    sizes = []
    end = output._end

    def noted(path: Path, size: int) -> bytes:
        sizes.append(len(data := end(path, size)))
        return data

    monkeypatch.setattr(output, "_end", noted)
    assert file.last(1000).endswith(lines(1, 49_999))
    assert sum(sizes) == 1001
