"""Exports of the model on their way from a program to the store."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.containers import job
from tests.runtime.executor.master import Master
from tony_provider.runtime.common import contract
from tony_provider.runtime.jobspec.model import ExportSpec, Processes, TaskSpec
from tony_provider.runtime.protocol import tony_pb2

_SDK = """
import pathlib, time, tony_sdk
pathlib.Path("ready").touch()
step = 5
while True:
    if tony_sdk.export_requested():
        with tony_sdk.export(step) as directory:
            pathlib.Path(directory, "deep").mkdir()
            pathlib.Path(directory, "deep", "weights").write_text(f"of step {step}")
        step += 1
    time.sleep(0.02)
"""
_WAITS = "touch ready; exec sleep 1000"


def export_now(asked_ms: int) -> tony_pb2.ToExecutor:
    return tony_pb2.ToExecutor(export_now=tony_pb2.ExportNow(asked_ms=asked_ms, reason="ann wants it"))


def make(running: Running, name: str, text: str = "weights") -> Path:
    """As a program in any language does."""
    exports = running.container.directory / "tony-work" / "exports"
    aside, path = exports / f"{name}.part", exports / name
    aside.mkdir()
    if text:
        (aside / "weights").write_text(text)
    aside.rename(path)
    return path


def stored(running: Running) -> list[str]:
    directory = running.container.application_dir / contract.EXPORTS_DIR
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


async def waiting(launch: Launch, **export: int) -> Running:
    running = await launch(job(_WAITS, export=ExportSpec(**export)))
    await running.begin()
    await running.until_there("ready")
    return running


async def test_an_export_that_is_asked_for_comes_to_the_store(launch: Launch) -> None:
    running = await launch(f"exec {sys.executable} asked.py")
    (running.container.directory / "asked.py").write_text(_SDK)
    await running.begin()
    await running.until_there("ready")
    for number, step in ((1000, 5), (2000, 6)):
        running.master.say(export_now(number))
        running.master.say(export_now(number))  # again, as by a master that has lost its connection
        exported = (await running.master.all_of("exported", step - 4))[-1]
        assert (exported.step, exported.asked_ms, exported.problem) == (step, number, "")
        assert exported.uri == f"{running.container.store}/app/exports/step-{step}"
        file = running.container.application_dir / "exports" / f"step-{step}" / "deep" / "weights"
        assert file.read_text() == f"of step {step}"
    await running.until(
        lambda: list((running.container.directory / "tony-work" / "exports").iterdir()) == [], "the disk is free again"
    )
    assert stored(running) == ["step-5", "step-6"]
    assert "the application master requests an export of the model: ann wants it" in running.executor.stderr


async def test_a_program_may_export_by_itself_and_only_the_newest_stay(launch: Launch) -> None:
    running = await waiting(launch, keep_last=2)
    for count, step in enumerate((7, 8, 3), start=1):  # it has begun again after 8
        make(running, f"step-{step}", f"of {step}")
        exported = (await running.master.all_of("exported", count))[-1]
        assert (exported.step, exported.asked_ms) == (step, 0)
    assert stored(running) == ["step-3", "step-8"]


async def test_an_export_that_is_there_stays_as_it_is(launch: Launch) -> None:
    """As after a restart, or where the executor was killed before it could tell of it."""
    running = await waiting(launch)
    there = running.container.application_dir / "exports" / "step-7"
    there.mkdir(parents=True)
    (there / "weights").write_text("first")
    for count in (1, 2):
        make(running, "step-7", "second")
        assert (await running.master.all_of("exported", count))[-1].step == 7  # so whoever asked gets an answer
        await running.until(
            lambda: not list((running.container.directory / "tony-work" / "exports").iterdir()), "it is removed"
        )
    assert (there / "weights").read_text() == "first"
    assert stored(running) == ["step-7"]


@pytest.mark.parametrize("kind", ["empty", "file", "link"])
async def test_what_cannot_be_kept_is_told_and_ends_nothing(launch: Launch, kind: str) -> None:
    running = await waiting(launch)
    exports = running.container.directory / "tony-work" / "exports"
    if kind == "empty":
        make(running, "step-1", "")
    elif kind == "file":
        (exports / "step-1").write_text("weights")
    else:
        (exports / "step-1").symlink_to(exports.parent)
    exported = await running.master.first("exported")
    assert (exported.step, exported.uri) == (1, "")
    assert exported.problem
    make(running, "step-2")
    assert (await running.master.all_of("exported", 2))[-1].problem == ""
    assert stored(running) == ["step-2"]


async def test_a_store_that_takes_nothing_is_tried_again(launch: Launch) -> None:
    running = await waiting(launch, keep_last=2)
    directory = running.container.application_dir / "exports"
    directory.write_text("in the way")
    make(running, "step-1")
    beat = await running.master.heartbeat_with(lambda beat: beat.trouble)
    assert beat.trouble.startswith("cannot upload the export of step 1 to the store, retrying: ")
    directory.unlink()
    assert (await running.master.first("exported")).step == 1
    assert stored(running) == ["step-1"]


async def test_the_last_export_is_uploaded_though_the_process_has_ended(launch: Launch) -> None:
    code = 3
    command = 'mkdir "$TONY_EXPORT_DIR/a"; echo w > "$TONY_EXPORT_DIR/a/w"; mv "$TONY_EXPORT_DIR/a" '
    running = await launch(f'{command} "$TONY_EXPORT_DIR/step-9"; exit {code}')
    await running.begin()
    assert (await running.master.first("exited")).exit_code == code
    await running.master.first("settled")
    assert (await running.master.first("exported")).step == 9
    assert stored(running) == ["step-9"]


async def test_a_master_that_comes_back_hears_of_the_newest(launch: Launch) -> None:
    running = await waiting(launch)
    make(running, "step-1")
    first = await running.master.first("exported")
    await running.lose_master()
    await running.meet(Master(running.master.application_id, running.master.key, welcome=running.master.welcome))
    assert await running.master.first("exported") == first


async def test_the_next_start_finds_neither_a_request_nor_exports(launch: Launch) -> None:
    running = await launch(
        'ls -A "$TONY_EXPORT_DIR"; ls "$TONY_EXPORT_REQUEST" 2>/dev/null; echo looked; mkdir "$TONY_EXPORT_DIR/half";'
        " touch ready; while [ ! -e go ]; do sleep 0.05; done"
    )
    await running.begin()
    await running.until_there("ready")
    running.master.say(export_now(1000))
    request = running.container.directory / "tony-work" / "export-request"
    await running.until(request.exists, "it is asked for")
    assert request.read_text() == "ann wants it\n"
    (running.container.directory / "go").touch()
    await running.master.first("settled")
    await running.begin(generation=2)
    await running.master.all_of("settled", 2)
    assert (running.container.log_dir / "task.out").read_text() == "looked\nlooked\n"


@pytest.mark.parametrize(("index", "asked"), [(0, ["asked-0"]), (1, [])])
async def test_only_the_leaders_local_rank_0_is_asked(launch: Launch, index: int, asked: list[str]) -> None:
    """The others find neither a directory nor a request."""
    command = 'if [ -n "$TONY_EXPORT_DIR$TONY_EXPORT_REQUEST" ]; then touch "asked-$TONY_LOCAL_RANK"; fi'
    tasks = {"worker": TaskSpec(command=command, instances=2, processes=Processes("2"))}
    running = await launch(job("", tasks=tasks), task=f"worker:{index}")
    ports = dict((await running.master.first("registration")).ports)
    running.master.rendezvous(
        *(
            tony_pb2.TaskAddress(type="worker", index=each, role="worker", host="10.0.0.2", ports=ports)
            for each in (0, 1)
        )
    )
    assert (await running.master.first("exited")).exit_code == 0
    assert sorted(path.name for path in running.container.directory.glob("asked-*")) == asked
