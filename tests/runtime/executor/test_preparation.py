"""What lies in the container when a user process starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.files import files_below
from tests.runtime.executor import stored, trainer
from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.containers import job
from tests.runtime.executor.master import address
from tests.runtime.executor.test_mirror import COMMAND, kinds
from tony_provider.runtime.jobspec.model import Role, TaskSpec
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.storage import LocalStorage, local_path

_LOOK = (
    "env | grep ^TONY_RESUME | sed s:$TONY_CHECKPOINT_DIR:DIR: > seen; "
    "find $TONY_CHECKPOINT_DIR -type f -printf '%P\\n' | sort >> seen; touch ready"
)


def resume(uri: str, step: int) -> dict[str, Any]:
    return {"resume": tony_pb2.Resume(step=step, uri=uri)}


def seen(running: Running) -> list[str]:
    return (running.container.directory / "seen").read_text().splitlines()


def checkpoints(running: Running) -> Path:
    return running.container.directory / "tony-work" / "checkpoints"


async def test_a_start_from_the_beginning(launch: Launch) -> None:
    running = await launch(_LOOK)
    (checkpoints(running)).mkdir(parents=True, exist_ok=True)
    await running.master.first("registration")
    (checkpoints(running) / "left").touch()
    await running.begin()
    assert (await running.master.first("exited")).exit_code == 0
    assert seen(running) == []


async def test_the_directory_holds_exactly_the_resume_point(launch: Launch) -> None:
    running = await launch(_LOOK)
    uri = stored.commit(running.container.chain_dir, 120)
    await running.master.first("registration")
    (checkpoints(running) / "left").touch()
    await running.begin(**resume(uri, 120))
    assert (await running.master.first("exited")).exit_code == 0
    assert sorted(seen(running)[:2]) == ["TONY_RESUME_FROM=DIR/weights-120", "TONY_RESUME_STEP=120"]
    assert seen(running)[2:] == ["weights-120/a", "weights-120/b"]
    assert files_below(running.container.directory / "tony-work" / "set-aside") == ["left"]
    assert (checkpoints(running) / "weights-120" / "a").read_bytes() == trainer.content(120, "a", 1000)
    assert (
        "[tony] worker:0 on 127.0.0.1, from snapshot 120 (step 120)"
        in (running.container.directory / "tony-work" / "output.log").read_text()
    )


async def test_each_rank_gets_its_own_shards_and_the_others(launch: Launch) -> None:
    running = await launch(_LOOK, task="worker:1")
    uri = stored.commit(running.container.chain_dir, 7, ranks=2)
    await running.begin(**resume(uri, 7))
    assert (await running.master.first("exited")).exit_code == 0
    assert seen(running)[2:] == ["weights-7/a", "weights-7/b", "weights-7/of-1"]
    assert (checkpoints(running) / "weights-7" / "a").read_bytes() == trainer.content(7, "a1", 1000)


@pytest.mark.parametrize(("role", "restores"), [(Role.PS, False), (Role.EVALUATOR, True), (Role.SIDECAR, False)])
async def test_who_goes_on_from_a_checkpoint(launch: Launch, role: Role, restores: bool) -> None:
    tasks = {"chief": TaskSpec(command=_LOOK), "other": TaskSpec(command=_LOOK, role=role)}
    running = await launch(job("", tasks=tasks), task="other:0")
    uri = stored.commit(running.container.chain_dir, 7)
    running.master.rendezvous(
        address("chief", 0, 20000, role="chief"), address("other", 0, 20001, role=role.value), **resume(uri, 7)
    )
    assert (await running.master.first("exited")).exit_code == 0
    assert seen(running)[2:] == (["weights-7/a", "weights-7/b"] if restores else [])


async def test_what_is_here_already_is_not_copied_again(launch: Launch) -> None:
    running = await launch(COMMAND)
    await running.begin()
    running.order("save 120")
    uploaded = await running.master.uploaded(120)
    uri = stored.commit_uploaded(uploaded)
    running.master.answer(uploaded)
    running.order("write broken half")
    running.order("exit 1")
    await running.master.first("settled")
    await running.begin(generation=2, **resume(uri, 120))
    await running.master.all_of("started", 2)
    assert "UTC): copied 0 bytes from the storage, reused 2130" in running.executor.stderr
    assert files_below(checkpoints(running)) == ["step-120.tony.json", "weights-120/a", "weights-120/b"]
    running.order("exit 0")
    await running.master.all_of("settled", 2)
    assert kinds(running).count("uploaded") == 1  # what it went on from is on the store


async def test_what_was_changed_in_place_is_copied_again(launch: Launch) -> None:
    running = await launch(COMMAND)
    await running.begin()
    running.order("save 120")
    uploaded = await running.master.uploaded(120)
    uri = stored.commit_uploaded(uploaded)
    running.master.answer(uploaded)
    running.master.grants = True  # what was changed is another save
    for generation in (1, 2):  # after it was uploaded, then after it was restored
        running.order(f"write weights-120/a {'x' * 1000}")
        running.order("exit 1")
        await running.master.all_of("settled", generation)
        await running.begin(generation=generation + 1, **resume(uri, 120))
        await running.master.all_of("started", generation + 1)
        assert (checkpoints(running) / "weights-120" / "a").read_bytes() == trainer.content(120, "a", 1000)
    assert running.executor.stderr.count("UTC): copied 1000 bytes from the storage, reused 1130") == 2


async def test_a_damaged_checkpoint_is_told_and_the_next_one_taken(launch: Launch) -> None:
    running = await launch(COMMAND)
    damaged = stored.commit(running.container.chain_dir, 120)
    stored.weights(damaged).write_bytes(b"x" * 2000)
    good = stored.commit(running.container.chain_dir, 80)
    await running.begin(**resume(damaged, 120))
    failed = await running.master.first("preparation_failed")
    assert (failed.generation, failed.start, failed.uri, failed.damaged) == (1, 1, damaged, True)
    assert "weights-120/a in the object" in failed.reason
    beat = await running.master.heartbeat_with(lambda beat: "restored" in beat.activity)
    assert beat.rss_bytes == 0
    await running.begin(generation=2, **resume(good, 80))
    started = await running.master.first("started")
    assert (started.generation, started.start) == (2, 2)


async def test_a_process_that_never_started_can_be_stopped(launch: Launch) -> None:
    running = await launch(COMMAND)
    await running.begin(**resume(f"{running.container.chain_dir}/checkpoints/save-000007-step-7-00000000", 7))
    assert (await running.master.first("preparation_failed")).damaged
    running.master.stop(1, grace=1)
    exited = await running.master.first("exited")
    assert (exited.start, exited.stopped) == (1, True)
    assert (await running.master.first("settled")).start == 1
    assert await running.end() == 0


async def test_a_store_that_fails_is_no_damage(launch: Launch) -> None:
    running = await launch(COMMAND)
    uri = stored.commit(running.container.chain_dir, 7)
    file = stored.weights(uri)
    file.unlink()
    file.mkdir()
    await running.begin(**resume(uri, 7))
    failed = await running.master.first("preparation_failed")
    assert (failed.uri, failed.damaged) == (uri, False)
    assert "Is a directory" in failed.reason


async def test_a_mocked_store_that_hangs_holds_nobody_up(launch: Launch) -> None:
    running = await launch(COMMAND, launcher=stored.HANGING_STORE)
    uri = stored.commit(running.container.chain_dir, 7)
    over = stored.hang(stored.weights(uri))
    await running.begin(**resume(uri, 7))
    beat = await running.master.heartbeat_with(lambda beat: True)
    assert beat.activity.startswith("restoring ")
    assert "step 7" in beat.activity
    running.master.stop(1, grace=0)
    assert (await running.master.first("exited")).stopped
    await running.begin(generation=2)  # from the beginning
    over.unlink()
    assert (await running.master.first("started")).generation == 2
    assert files_below(checkpoints(running)) == []


async def test_a_kept_directory_stays_without_unfinished_files(launch: Launch) -> None:
    running = await launch(COMMAND)
    await running.begin()
    running.order("save 30")
    running.order("save 40")
    running.order('write step-50.tony.json {"step":50,"entry":"w","files":[{"path":"w","size":9}]}')
    running.order("write notes half")
    running.order("exit 1")
    await running.master.first("exited")
    await running.begin(start=2, keep_checkpoints=True)
    await running.master.all_of("started", 2)
    assert files_below(checkpoints(running)) == [
        "step-30.tony.json",
        "step-40.tony.json",
        *(f"weights-{step}/{part}" for step in (30, 40) for part in "ab"),
    ]
    assert files_below(checkpoints(running).with_name("set-aside")) == ["notes", "step-50.tony.json"]
    running.order("exit 1")
    await running.master.all_of("exited", 2)
    assert "from its directory (step 40, " in (running.container.directory / "tony-work" / "output.log").read_text()


async def test_a_warm_start_is_copied_once(launch: Launch, tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "variables").mkdir(parents=True)
    (model / "saved.pb").write_text("graph")
    (model / "variables" / "data").write_text("weights")
    look = "cat $TONY_WARM_START/saved.pb $TONY_WARM_START/variables/data; exit 1"
    running = await launch(look, warm_start=f"file://{model}")
    await running.begin()
    await running.master.first("exited")
    (model / "saved.pb").unlink()
    await running.begin(generation=2)
    await running.master.all_of("exited", 2)
    assert (running.container.log_dir / "task.out").read_text() == "graphweights" * 2


async def test_a_warm_start_of_a_checkpoint_chain_is_its_newest_checkpoint(launch: Launch, tmp_path: Path) -> None:
    chain = f"file://{tmp_path}/chain-0001"
    LocalStorage().write(f"{chain}/chain.json", b"{}")
    stored.commit(chain, 7)
    stored.commit(chain, 8, ranks=2)
    broken = stored.commit(chain, 9)
    stored.weights(broken).unlink()
    running = await launch("cd $TONY_WARM_START; find . -type f | sort; exit 1", warm_start=chain)
    await running.begin()
    await running.master.first("exited")
    assert (running.container.log_dir / "task.out").read_text().split() == [
        "./weights-8/a", "./weights-8/b", "./weights-8/of-1"
    ]  # fmt: skip
    assert local_path(broken).exists()  # it is not set aside: the chain belongs to another job
    stored.commit(chain, 10)
    await running.begin(generation=2)
    await running.master.all_of("exited", 2)
    assert "weights-10" not in (running.container.log_dir / "task.out").read_text()


async def test_a_warm_start_that_is_not_there(launch: Launch, tmp_path: Path) -> None:
    running = await launch("true", warm_start=f"file://{tmp_path}/nothing")
    await running.begin()
    failed = await running.master.first("preparation_failed")
    assert (failed.uri, failed.damaged) == ("", False)
    assert failed.reason.startswith("the warm start could not be copied: ")


async def test_a_node_that_has_no_room_for_its_files(launch: Launch) -> None:
    running = await launch("true")
    await running.master.first("registration")
    (running.container.directory / "tony-cluster.json").mkdir()
    await running.begin()
    failed = await running.master.first("preparation_failed")
    assert (failed.uri, failed.damaged) == ("", False)
    assert failed.reason.startswith("its files could not be written: [Errno 21] Is a directory")


async def test_where_programs_may_write_themselves(launch: Launch) -> None:
    running = await launch("echo $TONY_CHECKPOINT_URI")
    await running.begin()
    await running.master.first("exited")
    assert (running.container.log_dir / "task.out").read_text() == f"{running.container.chain_dir}/user\n"
