"""What an executor copies to the store for the outputs of its job, and when."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import cast

import pytest

from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.containers import APPLICATION, job
from tests.runtime.executor.test_inputs import CLIENT, Client, answer, asked
from tony_provider.runtime.jobspec.model import InputDeal, InputSpec, JobSpec, OutputSpec
from tony_provider.runtime.protocol import tony_pb2


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where the application master has looked already."""
    path = tmp_path / "data" / "out"
    (path.parent / f"_out.{APPLICATION}").mkdir(parents=True)
    return path


def writing(command: str, target: Path | str) -> JobSpec:
    return job(command, outputs={"out": OutputSpec(str(target))})


def parts(target: Path) -> dict[str, str]:
    """The files of all parts, while the job runs."""
    staging = target.parent / f"_{target.name}.{APPLICATION}"
    found = (path for path in staging.rglob("*") if path.is_file())
    return {path.relative_to(staging).as_posix(): path.read_text() for path in found}


def kept(part: str, files: int, size: int) -> list[tony_pb2.KeptOutput]:
    return [tony_pb2.KeptOutput(name="out", part=part, files=files, bytes=size)]


async def test_each_start_that_ends_well_leaves_a_part_of_its_own(launch: Launch, target: Path) -> None:
    command = 'cd "$TONY_OUTPUT_OUT" && echo $TONY_GENERATION > "only-$TONY_GENERATION"; [ $TONY_GENERATION != 2 ]'
    running = await launch(writing(command, target))
    for generation in (1, 2, 3):
        await running.begin(generation=generation)
        await running.master.all_of("exited", generation)
    ends = await running.master.all_of("exited", 3)
    assert [list(end.outputs) for end in ends] == [kept("worker-0.1.1", 1, 2), [], kept("worker-0.1.3", 1, 2)]
    assert parts(target) == {"worker-0.1.1/only-1": "1\n", "worker-0.1.3/only-3": "3\n"}
    [part] = target.parent.glob("_*/worker-0.1.1")
    assert (part.stat().st_mode & 0o777, (part / "only-1").stat().st_mode & 0o777) == (0o755, 0o644)


async def test_a_store_without_a_driver_is_told_before_the_program_starts(launch: Launch, tmp_path: Path) -> None:
    running = await launch(writing(f"touch {tmp_path}/began", "nosuch://bucket/out"))
    await running.begin()
    ended = await running.master.first("exited")
    assert ended.exit_code == 126
    assert "outputs.out.path: nosuch://bucket/out cannot be written from this node" in ended.error
    assert "nosuch:// is not supported here; use hdfs://, s3://, s3a://, file://" in ended.error
    assert not (tmp_path / "began").exists()


async def test_a_path_that_is_not_mounted_on_the_node_is_told_before_the_program_starts(
    launch: Launch, tmp_path: Path
) -> None:
    running = await launch(writing("true", tmp_path / "shared" / "out"))
    await running.begin()
    ended = await running.master.first("exited")
    assert ended.exit_code == 126
    assert f"outputs.out.path: {tmp_path}/shared/out does not exist on this node; mount its file system" in ended.error


async def begin(launch: Launch, target: Path) -> tuple[Running, Client, Path]:
    spec = job(
        f'echo rest > "$TONY_OUTPUT_OUT/rest"; {sys.executable} client.py',
        inputs={"data": InputSpec(["/data"], InputDeal.QUEUE)},
        outputs={"out": OutputSpec(str(target))},
    )
    running = await launch(spec)
    (running.container.directory / "client.py").write_text(CLIENT.replace("time.sleep(1000)", ""))
    await running.begin()
    await running.master.first("started")
    out = running.container.directory / "tony-work" / "outputs" / "out"
    await running.until((out / "rest").exists, "the program runs")
    return running, Client(running), out


def error_of(heard: object) -> str:
    return str(cast("dict[str, object]", heard)["error"])


async def test_what_was_made_of_a_shard_is_there_before_its_commit_is_asked_for(launch: Launch, target: Path) -> None:
    running, client, out = await begin(launch, target)
    (out / "sub").mkdir()
    for name in ("1", "sub/2", "sub/3", "4"):
        (out / name).write_text(name)

    client.say({"done": 5, "outputs": [str(out / "1"), "elsewhere", str(out / "sub")]})
    request = await asked(running.master, 1)
    part = f"file://{target.parent}/_out.{APPLICATION}/worker-0.1.1"
    assert sorted(request.outputs) == ["elsewhere", f"{part}/1", f"{part}/sub/2", f"{part}/sub/3"]
    assert parts(target) == {f"worker-0.1.1/{name}": name for name in ("1", "sub/2", "sub/3")}
    answer(running.master, request.request)
    assert await client.heard(1) == {}

    client.say({"done": 6, "outputs": [str(out / "4")]})
    request = await asked(running.master, 2)
    assert "worker-0.1.1/4" in parts(target)
    answer(running.master, request.request, problem="shard 6 of data is not assigned to worker:0 any more")
    assert "not assigned to worker:0 any more" in error_of(await client.heard(2))

    assert "no such file" in error_of(await client.heard(client.say({"done": 7, "outputs": [str(out / "7")]}))).lower()
    again = error_of(await client.heard(client.say({"done": 7, "outputs": [str(out / "1")]})))
    assert again == "1 is the output of an earlier shard; write a file for each shard"

    (out / "1").unlink()  # it is safe
    client.say("bye")
    ended = await running.master.first("exited")
    assert parts(target) == {
        "worker-0.1.1/1": "1",
        "worker-0.1.1/sub/2": "sub/2",
        "worker-0.1.1/sub/3": "sub/3",
        "worker-0.1.1/rest": "rest\n",
    }
    assert list(ended.outputs) == kept("worker-0.1.1", 4, 1 + 5 + 5 + 5)


async def test_links_count_by_their_names_and_pipes_are_refused(launch: Launch, target: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "big").write_text("big")
    running, client, out = await begin(launch, target)
    (out / "1").mkdir()
    (out / "1" / "inner").symlink_to(tmp_path / "cache" / "big")
    (out / "2").symlink_to(tmp_path / "cache")
    (out / "3").symlink_to(tmp_path / "cache" / "big")

    client.say({"done": 5, "outputs": [str(out / name) for name in ("1", "2", "3")]})
    request = await asked(running.master, 1)
    part = f"file://{target.parent}/_out.{APPLICATION}/worker-0.1.1"
    assert sorted(request.outputs) == [f"{part}/1/inner", f"{part}/2/big", f"{part}/3"]
    assert parts(target) == {f"worker-0.1.1/{name}": "big" for name in ("1/inner", "2/big", "3")}
    answer(running.master, request.request)
    assert await client.heard(1) == {}

    os.mkfifo(out / "pipe")
    (out / "round").symlink_to("round")
    for name in ("pipe", "round"):
        said = client.say({"done": 6, "outputs": [str(out / name)]})
        assert "the output of the shard could not be copied to the store: " in error_of(await client.heard(said))
        (out / name).unlink()
    client.say("bye")
    ended = await running.master.first("exited")
    assert list(ended.outputs) == kept("worker-0.1.1", 4, 3 * 3 + 5)
