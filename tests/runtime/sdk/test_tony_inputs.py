from __future__ import annotations

import contextlib
import itertools
import json
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tony_provider.runtime.common import contract
from tony_provider.runtime.inputs.shards import InputShard
from tony_provider.runtime.sdk import tony_inputs, tony_sdk


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in vars(contract).values():
        if isinstance(name, str) and name.startswith("TONY_"):
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "tony_inputs", tony_inputs)  # in a job it lies beside tony_sdk


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    found = [tmp_path / name for name in ("a.csv", "b.csv")]
    for path in found:
        path.write_text(path.name)
    return found


def test_outside_a_job_local_files_are_read(files: list[Path]) -> None:
    shards = list(tony_sdk.inputs("data", local=f"{files[0].parent}/*.csv"))
    assert [shard.path for shard in shards] == [str(path) for path in files]
    assert [shard.size for shard in tony_sdk.inputs("data", local=map(str, files))] == [5, 5]
    assert list(tony_sdk.inputs("data")) == []


def test_a_part_is_read_again_and_again(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = tmp_path / "part.jsonl"
    part.write_bytes(b"".join(InputShard(f"file://{path}", 5, 7).line() for path in files))
    monkeypatch.setenv("TONY_INPUT_DATA", str(part))
    for _ in range(2):
        shards = []
        for shard in tony_sdk.inputs("data"):
            with shard as opened:
                shards.append((opened.path, opened.size, opened.modified_ms))
        assert shards == [(str(path), 5, 7) for path in files]
    files[1].unlink()
    with pytest.raises(tony_inputs.InputError, match=r"b\.csv was listed, but does not exist any more"):
        list(tony_sdk.inputs("data"))


def test_a_piece_of_a_file_that_has_changed_is_refused(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = files[0].stat()
    listed = InputShard(f"file://{files[0]}", stat.st_size, stat.st_mtime_ns // 1_000_000, "lines", 2, 3)
    part = tmp_path / "part.jsonl"
    part.write_bytes(listed.line())
    monkeypatch.setenv("TONY_INPUT_DATA", str(part))
    (found,) = tony_sdk.inputs("data")
    assert (found.format, found.offset, found.length, found.row_groups) == ("lines", 2, 3, None)
    files[0].write_text("longer than before")
    with pytest.raises(tony_inputs.InputError, match=r"a\.csv has changed since it was listed"):
        list(tony_sdk.inputs("data"))


def test_a_copy_of_a_cut_file_has_a_time_of_its_own(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = json.loads(InputShard("hdfs:///a.csv", 5, 7, "lines", 2, 3).line())
    part = tmp_path / "part.jsonl"
    part.write_text(json.dumps({**line, "path": str(files[0])}))
    monkeypatch.setenv("TONY_INPUT_DATA", str(part))
    (found,) = tony_sdk.inputs("data")
    assert found.path == str(files[0])


def test_an_input_that_the_job_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.ENV_TASK_TYPE, "worker")
    with pytest.raises(tony_inputs.InputError, match="no input 'data' for this task type"):
        tony_sdk.inputs("data", local="*.csv")


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """What a stand-in for the executor hears, and what it answers, one after the other; then it hangs up."""
    heard: list[bytes] = []
    answers: list[bytes] = []
    path = tmp_path / "socket"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    monkeypatch.setenv(contract.ENV_INPUT_QUEUES, "other,data")
    monkeypatch.setenv(contract.ENV_INPUT_SOCKET, str(path))

    def serve() -> None:
        connection, _ = server.accept()
        with connection, connection.makefile("rwb") as lines:
            for line in lines:
                heard.append(line.rstrip())
                if not answers:
                    return
                lines.write(answers.pop(0) + b"\n")
                lines.flush()

    thread = threading.Thread(target=serve)
    thread.start()
    yield heard, answers
    thread.join(60)
    server.close()


def shard(number: int) -> bytes:
    return b'{"shard": %d, "uri": "hdfs:///x/%d", "size": 1, "modified_ms": 2}' % (number, number)


TAKE = b'{"input": "data", "take": true}'
END = b'{"end": true, "failed": 0, "failures": ""}'


def test_the_next_one_commits_the_one_before(said: tuple[list[bytes], list[bytes]]) -> None:
    heard, answers = said
    answers += [shard(0), shard(1), END]
    assert [each.path for each in tony_sdk.inputs("data")] == ["hdfs:///x/0", "hdfs:///x/1"]
    assert heard == [TAKE, *(b'{"input": "data", "done": %d, "take": true}' % number for number in range(2))]


def test_a_piece_comes_with_what_was_listed(said: tuple[list[bytes], list[bytes]]) -> None:
    _, answers = said
    piece = InputShard("hdfs:///x", 9, 2, "parquet", length=5, row_groups=(1, 3), checksum="MD5:0").line()
    answers += [b'{"shard": 0, ' + piece.strip()[1:], END]
    (found,) = tony_sdk.inputs("data")
    assert (found.size, found.length, found.row_groups, found.checksum) == (9, 5, range(1, 3), "MD5:0")


REFUSED = b'{"error": "x was made of an earlier shard"}'


def test_a_shard_whose_commit_was_refused_is_given_back(said: tuple[list[bytes], list[bytes]]) -> None:
    """Or the loop would wait for itself."""
    heard, answers = said
    answers += [shard(0), REFUSED, shard(1), REFUSED, b"{}", shard(2), REFUSED, b"{}", END]
    for number, taken in enumerate(tony_sdk.inputs("data")):
        with contextlib.suppress(tony_inputs.InputError), taken if number == 2 else contextlib.nullcontext():
            taken.done("x")
        if number == 1:
            taken.done("y")
    assert [json.loads(line) for line in heard[2:3] + heard[5:]] == [
        {"input": "data", "back": 0, "take": True},
        {"input": "data", "take": True},
        {"input": "data", "done": 2, "outputs": ["x"]},
        {"input": "data", "back": 2},
        {"input": "data", "take": True},
    ]


def test_a_thread_may_say_that_a_shard_is_done_while_the_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer goes to who has asked, and each shard is committed once, whoever is faster."""
    count, done = 300, list[int]()
    path = tmp_path / "socket"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    monkeypatch.setenv(contract.ENV_INPUT_QUEUES, "data")
    monkeypatch.setenv(contract.ENV_INPUT_SOCKET, str(path))

    def serve() -> None:
        connection, _ = server.accept()
        numbers = iter(range(count))
        with connection, connection.makefile("rwb") as lines:
            for line in lines:
                asked = json.loads(line)
                done.extend([asked["done"]] if "done" in asked else [])
                number = next(numbers, None) if "take" in asked else -1
                lines.write(b"{}" if number == -1 else END if number is None else shard(number))
                lines.write(b"\n")
                lines.flush()

    serving = threading.Thread(target=serve)
    serving.start()
    with ThreadPoolExecutor(4) as pool:
        taken = [pool.submit(each.done) and each.uri for each in tony_sdk.inputs("data")]
    serving.join(60)
    server.close()
    assert taken == [f"hdfs:///x/{number}" for number in range(count)]
    assert done == list(range(count))


def test_what_is_said_of_a_shard_counts_once(said: tuple[list[bytes], list[bytes]]) -> None:
    heard, answers = said
    answers += [shard(0), b"{}", shard(1), b"{}", shard(2), b"{}", END.replace(b"0", b"1").replace(b'""', b'"bad"')]
    shards = tony_sdk.inputs("data")
    first = next(shards)
    first.done("out")
    first.give_back()
    next(shards).failed("no JPEG")
    with pytest.raises(ZeroDivisionError), next(shards):
        raise ZeroDivisionError
    with pytest.raises(tony_inputs.InputError, match=r"shards of the input data: 1\. bad"):
        next(shards)
    assert [line for line in heard if line != TAKE] == [
        b'{"input": "data", "done": 0, "outputs": ["out"]}',
        b'{"input": "data", "failed": 1, "reason": "hdfs:///x/1: no JPEG"}',
        b'{"input": "data", "back": 2}',
    ]


def test_a_shard_is_given_back_when_its_loop_is_left(said: tuple[list[bytes], list[bytes]]) -> None:
    heard, answers = said
    answers.append(shard(0))
    shards = list(itertools.islice(tony_sdk.inputs("data"), 1))
    with pytest.raises(tony_inputs.InputError, match="returned to the queue when its loop ended"):
        shards[0].done()
    assert heard == [TAKE]


@pytest.mark.parametrize(
    ("answer", "words"), [(b'{"error": "not yours any more"}', "not yours any more"), (b"", "closed the connection")]
)
def test_a_commit_that_is_refused_or_not_heard(
    said: tuple[list[bytes], list[bytes]], answer: bytes, words: str
) -> None:
    _, answers = said
    answers += [shard(0), *filter(None, [answer])]
    with pytest.raises(tony_inputs.InputError, match=words):
        list(tony_sdk.inputs("data"))


def test_an_executor_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(contract.ENV_INPUT_QUEUES, "data")
    monkeypatch.setenv(contract.ENV_INPUT_SOCKET, str(tmp_path / "nobody"))
    with pytest.raises(tony_inputs.InputError, match="the executor does not answer"):
        list(tony_sdk.inputs("data"))


def test_outputs_in_a_job_and_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tony_sdk.output("scores", local=tmp_path / "new" / "scores") == str(tmp_path / "new" / "scores")
    assert (tmp_path / "new" / "scores").is_dir()
    with pytest.raises(ValueError, match="this process is not a task of a job; set local="):
        tony_sdk.output("scores")
    monkeypatch.setenv(contract.ENV_TASK_TYPE, "worker")
    monkeypatch.setenv(contract.ENV_OUTPUT_PREFIX + "SCORES", "/here")
    assert tony_sdk.output("scores", local="elsewhere") == "/here"
    with pytest.raises(ValueError, match="the job has no output 'other' for this task type"):
        tony_sdk.output("other")
