"""A container with several user processes: how they end together, and what each finds, prints and reports."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.containers import is_alive, job, until
from tony_provider.runtime.common.contract import WORK_DIR
from tony_provider.runtime.executor.output import ProcessFiles
from tony_provider.runtime.jobspec.model import (
    CheckpointSpec,
    Duration,
    JobSpec,
    LogSpec,
    Memory,
    MirrorScope,
    Processes,
    TaskSpec,
    Timeouts,
)
from tony_provider.runtime.protocol import tony_pb2


def two(command: str, **changes: object) -> JobSpec:
    """One task with two processes, and another one elsewhere."""
    tasks = {"worker": TaskSpec(command=command, instances=2, processes=Processes("2"))}
    return job("", tasks=tasks, **changes)


async def begin(running: Running) -> None:
    registration = await running.master.first("registration")
    assert sorted(registration.ports) == ["main", "main.1", "preflight"]
    own = tony_pb2.TaskAddress(type="worker", index=0, role="worker", host="127.0.0.1", ports=registration.ports)
    other = tony_pb2.TaskAddress(
        type="worker", index=1, role="worker", host="10.0.0.2", ports={"main": 20001, "main.1": 20002}
    )
    running.master.rendezvous(own, other)


def written(running: Running, name: str) -> str:
    return (running.container.log_dir / name).read_text()


async def test_each_has_places_of_its_own_and_one_for_checkpoints(launch: Launch) -> None:
    names = (
        "METRICS_FILE MODEL_DIR RESULT_FILE CHECKPOINT_DIR CHECKPOINT_REQUEST TENSORBOARD_DIR PORT CLUSTER_SPEC_FILE"
    )
    running = await launch(two(f"for name in {names}; do eval echo \\$TONY_$name; done"))
    await begin(running)
    ended = await running.master.first("exited")
    assert (ended.exit_code, ended.signal, ended.error, ended.process, ended.stopped) == (0, 0, "", "", False)
    places = [
        dict(zip(names.split(), written(running, name).splitlines(), strict=True))
        for name in ("task.out", "task-1.out")
    ]
    same = {name for name in places[0] if places[0][name] == places[1][name]}
    assert same == {"CHECKPOINT_DIR"}
    registration = await running.master.first("registration")
    assert [int(each["PORT"]) for each in places] == [registration.ports["main"], registration.ports["main.1"]]
    assert places[1]["TENSORBOARD_DIR"].startswith(places[0]["TENSORBOARD_DIR"] + "/")
    for each in places:
        text = await asyncio.to_thread(Path(each["CLUSTER_SPEC_FILE"]).read_text)
        listed = json.loads(text)["worker"]
        own = [f"127.0.0.1:{registration.ports[name]}" for name in ("main", "main.1")]
        assert listed == [*own, "10.0.0.2:20001", "10.0.0.2:20002"]
    assert await running.end() == 0


async def test_their_lines_are_told_apart_where_they_stand_together(launch: Launch) -> None:
    running = await launch(two("echo one; echo two >&2"))
    await begin(running)
    await running.master.first("exited")
    assert await running.end() == 0
    kept = running.log.splitlines()
    assert sorted(kept[1:]) == ["[0] one", "[0] two", "[1] one", "[1] two"]
    assert written(running, "task.out") == written(running, "task-1.out") == "one\n"
    assert written(running, "task.err") == written(running, "task-1.err") == "two\n"


async def test_together_they_fill_no_more_than_one_would(launch: Launch) -> None:
    command = "i=0; while test $i -lt 40; do head -c 65536 /dev/zero | tr '\\0' x; echo; i=$((i + 1)); done"
    running = await launch(two(command, logs=LogSpec(max_size=Memory(1))))
    await begin(running)
    await running.master.first("exited")
    assert await running.end() == 0
    sizes = [path.stat().st_size for path in running.container.log_dir.glob("task*")]
    assert len(sizes) >= 4
    assert sum(sizes) <= 1 << 20


async def test_the_first_that_fails_ends_the_others_and_is_what_is_told(launch: Launch) -> None:
    fails = "until test -e ready; do sleep 0.05; done; echo bad >&2; exit 3"
    waits = "trap 'echo told to end; exit 0' TERM; touch ready; sleep 600 & wait"
    running = await launch(two(f"test $TONY_LOCAL_RANK = 0 || {{ {fails}; }}; {waits}"))
    await begin(running)
    ended = await running.master.first("exited")
    assert (ended.exit_code, ended.signal, ended.stopped) == (3, 0, False)
    assert (ended.process, ended.output_tail) == ("rank 1 (local rank 1)", "bad")
    assert await running.end() == 0
    assert written(running, "task.out") == "told to end\n"
    assert "[tony] rank 1 (local rank 1) has failed: stopping the others" in running.log


async def test_others_that_do_not_end_are_killed_after_the_grace(launch: Launch) -> None:
    fails = "until test -e ready; do sleep 0.05; done; exit 4"
    stays = "trap '' TERM; touch ready; while :; do sleep 0.1; done"
    command = f"test $TONY_LOCAL_RANK = 1 || {{ {fails}; }}; {stays}"
    running = await launch(two(command, timeouts=Timeouts(grace=Duration(0.5))))
    await begin(running)
    ended = await running.master.first("exited")
    assert (ended.exit_code, ended.process) == (4, "rank 0 (local rank 0)")
    await running.master.first("settled")
    assert await running.end() == 0


async def test_one_that_has_succeeded_waits_for_the_other(launch: Launch) -> None:
    running = await launch(two("test $TONY_LOCAL_RANK = 0 || { until test -e go; do sleep 0.05; done; }; echo done"))
    await begin(running)
    await until((running.container.log_dir / "task.out").exists, "local rank 0 has ended")
    await running.master.heartbeat_with(lambda beat: beat.activity == "running")
    assert not [each for each in running.master.received if each.WhichOneof("kind") == "exited"]
    (running.container.directory / "go").touch()
    ended = await running.master.first("exited")
    assert (ended.exit_code, ended.stopped, ended.process) == (0, False, "")
    assert await running.end() == 0


async def test_a_stop_is_for_all_of_them(launch: Launch) -> None:
    running = await launch(two("echo $$ > pid-$TONY_LOCAL_RANK; exec sleep 600"))
    await begin(running)
    pids = []
    for local_rank in (0, 1):
        await running.until_there(f"pid-{local_rank}")
        file = running.container.directory / f"pid-{local_rank}"
        await until(file.read_text, "it is written")
        pids.append(int(file.read_text()))
    running.master.stop(1, 5.0)
    ended = await running.master.first("exited")
    assert (ended.stopped, ended.process) == (True, "")
    assert not any(map(is_alive, pids))
    assert await running.end() == 0


async def test_heartbeats_tell_of_each_process(launch: Launch) -> None:
    report = 'echo "{\\"step\\": 1$TONY_RANK, \\"loss\\": $TONY_RANK}" >> $TONY_METRICS_FILE'
    running = await launch(two(f"{report}; exec sleep 600"))
    await begin(running)
    beat = await running.master.heartbeat_with(
        lambda beat: beat.progress.step == 10 and beat.further and beat.further[0].progress.step == 11
    )
    (further,) = beat.further
    assert (further.local_rank, further.rank, dict(further.progress.metrics)) == (1, 1, {"loss": 1.0})
    assert 0 < further.rss_bytes < beat.rss_bytes
    assert await running.end() == 0


@pytest.mark.parametrize("mirror", [MirrorScope.ALL, MirrorScope.LEADER])
async def test_all_are_asked_for_a_checkpoint_where_each_saves_its_part(launch: Launch, mirror: MirrorScope) -> None:
    running = await launch(two("exec sleep 600", checkpoint=CheckpointSpec(mirror=mirror)))
    await begin(running)
    await running.master.first("started")
    running.master.say(tony_pb2.ToExecutor(checkpoint_now=tony_pb2.CheckpointNow(reason="a test")))
    work = running.container.directory / WORK_DIR
    await until((work / "checkpoint-request").exists, "local rank 0 is asked")
    if mirror is MirrorScope.ALL:
        await until((work / "process-1" / "checkpoint-request").exists, "local rank 1 is asked")
    assert await running.end() == 0
    assert (work / "process-1" / "checkpoint-request").exists() == (mirror is MirrorScope.ALL)


async def test_a_killed_one_is_told_by_its_signal(launch: Launch) -> None:
    running = await launch(two("echo $$ > pid-$TONY_LOCAL_RANK; exec sleep 600"))
    await begin(running)
    await running.until_there("pid-1")
    file = running.container.directory / "pid-1"
    await until(file.read_text, "it is written")
    os.kill(int(file.read_text()), signal.SIGKILL)
    ended = await running.master.first("exited")
    assert (ended.signal, ended.exit_code, ended.process) == (signal.SIGKILL, 0, "rank 1 (local rank 1)")
    assert await running.end() == 0


lines = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b""]), max_size=20).map(b"".join)


@given(lines)
def test_marks_add_to_lines_that_hold_something_and_change_nothing_else(text: bytes) -> None:
    files = ProcessFiles(None, None, b"[1] ")  # type: ignore[arg-type]
    marked = files.marked(text)
    assert marked.replace(b"[1] ", b"") == text
    for line in marked.splitlines():
        assert not line or line.startswith(b"[1] ")
    assert ProcessFiles(None, None).marked(text) == text  # type: ignore[arg-type]
