"""The executor between its user process and the application master, when that deals inputs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.containers import APPLICATION, KEY, job
from tests.runtime.executor.master import Master
from tony_provider.runtime.inputs.shards import InputShard
from tony_provider.runtime.jobspec.model import InputDeal, InputSpec, JobSpec
from tony_provider.runtime.protocol import tony_pb2

# A client of the socket that waits for a file before each line that it sends, and writes down what it hears.
CLIENT = """
import os, pathlib, socket, time
client = socket.socket(socket.AF_UNIX)
client.connect(os.environ["TONY_INPUT_SOCKET"])
answers = client.makefile("rb")
number = 0
while True:
    number += 1
    order = pathlib.Path(f"say-{number}")
    while not order.exists():
        time.sleep(0.02)
    line = order.read_bytes()
    if line == b"bye":
        break
    client.sendall(line + b"\\n")
    part = pathlib.Path(f"part-{number}")
    part.write_bytes(answers.readline())
    part.rename(f"heard-{number}")
answers.close()
client.close()
pathlib.Path("gone").touch()
time.sleep(1000)
"""


def queue_job(program: str = "client.py") -> JobSpec:
    return job(f"exec {sys.executable} {program}", inputs={"data": InputSpec(["/data"], InputDeal.QUEUE)})


class Client:
    """The user process, as a test drives it."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._directory = running.container.directory
        self._said = 0

    def say(self, line: str | dict[str, object]) -> int:
        self._said += 1
        order = self._directory / f"order-{self._said}"
        order.write_text(line if isinstance(line, str) else json.dumps({"input": "data", **line}))
        order.rename(self._directory / f"say-{self._said}")
        return self._said

    async def heard(self, number: int) -> object:
        path = self._directory / f"heard-{number}"
        await self._running.until(path.exists, f"answer {number}")
        return json.loads(path.read_text())


async def asked(master: Master, count: int) -> tony_pb2.ShardRequest:
    """The request of this number, from 1 on."""
    request: tony_pb2.ShardRequest = (await master.all_of("shard_request", count))[count - 1]
    return request


def give(master: Master, request: int, shard: int, path: Path) -> None:
    stat = path.stat()
    line = InputShard(f"file://{path}", stat.st_size, stat.st_mtime_ns // 1_000_000).line().decode()
    master.say(tony_pb2.ToExecutor(shard_answer=tony_pb2.ShardAnswer(request=request, shard=shard, line=line)))


def answer(master: Master, request: int, **what: object) -> None:
    said = tony_pb2.ShardAnswer(request=request, **what)  # type: ignore[arg-type]
    master.say(tony_pb2.ToExecutor(shard_answer=said))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir()
    for number in range(3):
        (directory / str(number)).write_text("x")
    return directory


async def begin(launch: Launch) -> tuple[Running, Client]:
    running = await launch(queue_job())
    (running.container.directory / "client.py").write_text(CLIENT)
    await running.begin()
    return running, Client(running)


async def test_shards_are_asked_for_and_given_back_when_the_connection_ends(launch: Launch, data: Path) -> None:
    running, client = await begin(launch)
    number = client.say({"take": True})
    request = await asked(running.master, 1)
    assert (request.name, request.start, request.take, request.WhichOneof("shard")) == ("data", 1, True, None)
    give(running.master, request.request, 5, data / "0")
    heard = await client.heard(number)
    assert isinstance(heard, dict)
    assert (heard["shard"], heard["uri"], heard["size"]) == (5, f"file://{data}/0", 1)

    number = client.say({"done": 5, "outputs": ["o"], "take": True})
    request = await asked(running.master, 2)
    assert (request.done, list(request.outputs), request.take) == (5, ["o"], True)
    give(running.master, request.request, 6, data / "1")
    await client.heard(number)

    client.say("bye")
    request = await asked(running.master, 3)
    assert (request.back, request.take) == (6, False)


async def test_the_next_master_hears_what_is_held_and_what_has_no_answer(launch: Launch, data: Path) -> None:
    running, client = await begin(launch)
    client.say({"take": True})
    give(running.master, (await asked(running.master, 1)).request, 5, data / "0")
    await client.heard(1)
    number = client.say({"done": 5, "take": True})
    before = await asked(running.master, 2)
    await running.lose_master()
    await running.meet(Master(APPLICATION, KEY))
    registration = await running.master.first("registration")
    assert list(registration.shards) == [tony_pb2.HeldShards(start=1, name="data", shards=[5])]
    again = await asked(running.master, 1)
    assert again == before
    answer(running.master, again.request)
    assert await client.heard(number) == {"end": True, "failed": 0, "failures": ""}


async def test_a_shard_that_is_not_what_was_listed_is_passed_over(launch: Launch, data: Path) -> None:
    running, client = await begin(launch)
    number = client.say({"take": True})
    stat = (data / "0").stat()
    gone = InputShard(f"file://{data}/gone", 1, 1).line().decode()
    answer(running.master, (await asked(running.master, 1)).request, shard=7, line=gone)
    request = await asked(running.master, 2)
    assert (request.failed, request.take) == (7, True)
    assert request.reason == f"file://{data}/gone was listed, but does not exist any more"
    changed = InputShard(f"file://{data}/0", 1, stat.st_mtime_ns // 1_000_000 - 5).line().decode()
    answer(running.master, request.request, shard=8, line=changed)
    request = await asked(running.master, 3)
    assert (request.failed, request.reason) == (8, f"file://{data}/0 has changed since it was listed")
    answer(running.master, request.request, failed=2, failures="two of them")
    assert await client.heard(number) == {"end": True, "failed": 2, "failures": "two of them"}


@pytest.mark.parametrize(
    "line",
    [
        " ",
        "{",
        "7",
        "[]",
        "{}",
        '{"input": 7}',
        '{"input": "data", "done": "x"}',
        '{"input": "data", "done": 1, "back": 2}',
        '{"input": "data", "done": 1, "outputs": null}',
        '{"input": "data", "done": 1, "outputs": "out"}',
        '{"input": "data", "failed": 1, "reason": "\\ud800"}',
    ],
)
async def test_what_is_no_question_is_refused_and_the_next_is_heard(launch: Launch, line: str) -> None:
    running, client = await begin(launch)
    heard = await client.heard(client.say(line))
    assert isinstance(heard, dict)
    assert "not a valid request" in heard["error"]
    number = client.say({"take": True})
    answer(running.master, (await asked(running.master, 1)).request, problem="no such input")
    assert await client.heard(number) == {"error": "no such input"}


def static_job() -> JobSpec:
    command = 'cat "$TONY_INPUT_DATA"; [ -z "$TONY_INPUT_SOCKET" ] && echo static; touch ready; exec sleep 1000'
    return job(command, inputs={"data": InputSpec(["/data"])})


def part(master: Master, wanted: tony_pb2.InputPartWanted, **what: object) -> None:
    said = tony_pb2.InputPart(request=wanted.request, **what)  # type: ignore[arg-type]
    master.say(tony_pb2.ToExecutor(input_part=said))


async def test_a_part_comes_in_pieces_and_anew_when_it_was_dealt_again(launch: Launch) -> None:
    running = await launch(static_job())
    await running.begin()
    master = running.master
    wanted = await master.first("input_part_wanted")
    assert (wanted.name, wanted.position) == ("data", 0)
    part(master, wanted, parts=3, lines=b"old\n", position=1)
    wanted = (await master.all_of("input_part_wanted", 2))[1]
    assert wanted.position == 1
    part(master, wanted, parts=2, lines=b"other\n", position=2)
    wanted = (await master.all_of("input_part_wanted", 3))[2]
    assert wanted.position == 0
    part(master, wanted, parts=2, lines=b"one\n", position=1)
    wanted = (await master.all_of("input_part_wanted", 4))[3]
    part(master, wanted, parts=2, lines=b"two\n", position=2, last=True)
    await running.until_there("ready")
    printed = (running.container.log_dir / "task.out").read_text()
    assert printed == "one\ntwo\nstatic\n"


async def test_a_start_that_waits_for_its_part_can_be_stopped(launch: Launch) -> None:
    running = await launch(static_job())
    await running.begin()
    await running.master.first("input_part_wanted")
    running.master.stop(1, 5.0)
    exited = await running.master.first("exited")
    assert exited.stopped
    assert not (running.container.directory / "ready").exists()
    assert await running.end() == 0


async def test_a_part_that_is_not_to_be_had_starts_nothing(launch: Launch) -> None:
    running = await launch(static_job())
    await running.begin()
    part(running.master, await running.master.first("input_part_wanted"), problem="worker:0 is not an active reader")
    failed = await running.master.first("preparation_failed")
    assert (
        failed.reason
        == "the application master did not assign shards of the input data: worker:0 is not an active reader"
    )
    assert not failed.uri
