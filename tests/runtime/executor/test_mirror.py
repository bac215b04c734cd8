"""Checkpoints on their way to the store, while a process runs and after it."""

from __future__ import annotations

import signal
import sys
import zipfile
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.files import files_below
from tests.runtime.executor import trainer
from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.containers import APPLICATION, KEY, is_alive, job
from tests.runtime.executor.master import Master, address
from tony_provider.runtime import exit_codes
from tony_provider.runtime.artifacts.checksum import Checksum
from tony_provider.runtime.checkpoint.checkpoint_model import CheckpointName, LocalCheckpoint, directory_name, place_of
from tony_provider.runtime.checkpoint.snapshot import Snapshot, SnapshotFile
from tony_provider.runtime.executor import checkpoint_uploader
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.spec.model import CheckpointSpec, Duration, Memory, MirrorScope, Role, TaskSpec, Timeouts
from tony_provider.runtime.storage import local_path, uris

COMMAND = f"exec {sys.executable} {Path(trainer.__file__)}"
SLOW = job(COMMAND, checkpoint=CheckpointSpec(bandwidth=Memory(1)))  # in MiB a second


def uploads(running: Running) -> list[tony_pb2.CheckpointUploaded]:
    return [message.uploaded for message in running.master.received if message.WhichOneof("kind") == "uploaded"]


def kinds(running: Running) -> list[str]:
    """What was said, heartbeats left out."""
    said = [str(message.WhichOneof("kind")) for message in running.master.received]
    return [kind for kind in said if kind not in ("heartbeat", "registration")]


async def started(launch: Launch, **container: object) -> Running:
    spec = container.pop("spec", None) or job(COMMAND)
    running = await launch(spec, **container)
    await running.begin()
    await running.master.first("started")
    return running


def chain(running: Running) -> Path:
    return local_path(running.container.chain_dir)


def stored(running: Running, below: Path | None = None) -> list[str]:
    return files_below(below or chain(running))


def directory(uploaded: tony_pb2.CheckpointUploaded) -> Path:
    """Of the checkpoint on the store."""
    return local_path(uris.parent(uploaded.uri))


def keras_archive(path: Path, size: int) -> Path:
    """A checkpoint that is one file."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", bytes(size))
    return path


def checksum(data: bytes) -> str:
    summed = Checksum()
    summed.update(data)
    return summed.text


async def test_a_complete_checkpoint_goes_to_the_store_while_the_process_runs(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 120 3000000")
    uploaded = await running.master.first("uploaded")
    assert (uploaded.generation, uploaded.start, uploaded.step) == (1, 1, 120)
    assert uris.parent(uris.parent(uploaded.uri)) == f"{running.container.chain_dir}/checkpoints"
    assert place_of(directory(uploaded).name) == CheckpointName(1, 120)
    assert (uploaded.save, uploaded.saved_ms > 0) == (1, True)
    assert uris.name(uploaded.uri) == "rank-0"
    assert (uploaded.format, uploaded.entry) == ("manifest", "weights-120")
    files = {file.path: file for file in uploaded.files}
    assert sorted(files) == ["step-120.tony.json", "weights-120/a", "weights-120/b"]
    for part in ("a", "b"):
        data = trainer.content(120, part, 3_000_000)
        assert files[f"weights-120/{part}"].size == 3_000_000
        assert files[f"weights-120/{part}"].checksum == checksum(data)
        assert (Path(uploaded.uri[7:]) / f"weights-120/{part}").read_bytes() == data
    assert "exited" not in kinds(running)
    running.master.answer(uploaded)
    running.order("exit 0")
    await running.master.first("settled")
    assert kinds(running) == ["started", "uploaded", "exited", "settled"]
    assert (await running.master.first("settled")).problem == ""
    assert await running.end() == 0


async def test_only_what_is_newer_than_the_store_is_copied(launch: Launch) -> None:
    running = await started(launch)
    running.master.grants = True
    running.order("save 20")
    await running.master.uploaded(20)
    running.order("save 10")
    running.order("save 30")
    running.order("exit 3")
    assert (await running.master.first("settled")).problem == ""
    assert [uploaded.step for uploaded in uploads(running)] == [20, 30]


async def test_the_last_checkpoint_is_copied_after_the_end_was_told(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 40")
    running.order("exit 3")
    exited = await running.master.first("exited")
    assert exited.exit_code == 3
    running.master.answer(await running.master.uploaded(40))
    settled = await running.master.first("settled")
    assert (settled.start, settled.problem) == (1, "")
    assert kinds(running)[-3:] in (["exited", "uploaded", "settled"], ["uploaded", "exited", "settled"])


async def test_success_is_told_when_the_last_checkpoint_is_on_the_store(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 40")
    running.order("exit 0")
    last = await running.master.uploaded(40)
    assert "exited" not in kinds(running)
    running.master.answer(last)
    await running.master.first("settled")
    assert kinds(running) == ["started", "uploaded", "exited", "settled"]


async def test_a_stop_bounds_the_last_copy(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 40")
    await running.master.uploaded(40)  # and no answer
    running.master.stop(1, grace=5, checkpoint_seconds=0.5)
    exited = await running.master.first("exited")
    assert (exited.stopped, exited.start) == (True, 1)
    settled = await running.master.first("settled")
    assert settled.problem == "no time was left for uploading the checkpoint of step 40"


async def test_the_job_bounds_the_last_copy(launch: Launch) -> None:
    timeouts = Timeouts(grace=Duration(5), checkpoint=Duration(0.5))
    running = await started(launch, spec=job(COMMAND, timeouts=timeouts))
    running.order("save 40")
    running.order("exit 1")
    settled = await running.master.first("settled")
    assert settled.problem == "no time was left for uploading the checkpoint of step 40"


async def test_a_stop_that_leaves_no_time_begins_no_copy(launch: Launch) -> None:
    """Also when the mirror is just between two looks; the grant it would wait for never comes."""
    running = await started(launch)
    running.order("save 40")
    running.order("touch saved")
    await running.until_there("saved")
    running.master.stop(1, grace=5, checkpoint_seconds=0)
    settled = await running.master.first("settled")
    assert settled.problem.startswith("no time was left for ")
    assert await running.end() == 0


async def test_an_executor_that_is_not_wanted_any_more_ends(launch: Launch) -> None:
    """Its task has another container, as after the silence of a node, and nobody grants what it has not copied yet."""
    running = await started(launch)
    running.order("save 40")
    running.order("touch saved")
    await running.until_there("saved")
    await running.lose_master()
    await running.meet(Master(APPLICATION, KEY, refusal=grpc.StatusCode.PERMISSION_DENIED))
    assert await running.executor.wait() == exit_codes.REFUSED


async def test_shutdown_copies_the_last_checkpoint(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 50")
    running.order("touch saved")
    await running.until_there("saved")
    running.master.shutdown()
    running.master.answer(await running.master.uploaded(50))
    assert (await running.master.first("settled")).problem == ""
    assert await running.executor.wait() == 0


async def test_a_refused_checkpoint_is_removed_and_tried_under_another_name(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 60")
    first = await running.master.uploaded(60)
    running.master.answer(first, granted=False, reason="not now")
    await running.until(lambda: stored(running) == [], "what was refused is removed")
    running.order("exit 1")
    _, second = await running.master.all_of("uploaded", 2)
    assert place_of(directory(second).name) == CheckpointName(2, 60)
    assert second.uri != first.uri
    running.master.answer(second, granted=False, reason="another application owns the chain")
    settled = await running.master.first("settled")
    assert settled.problem == "the application master refused it: another application owns the chain"
    assert stored(running) == []


async def test_what_was_committed_though_it_was_refused_stays(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 60")
    uploaded = await running.master.uploaded(60)
    (directory(uploaded) / "manifest.json").write_text("{}")
    running.master.answer(uploaded, granted=False, reason="no answer from the store")
    running.order("exit 1")
    running.master.answer((await running.master.all_of("uploaded", 2))[1])
    await running.master.first("settled")
    assert (directory(uploaded) / "rank-0" / "weights-60" / "a").exists()


async def test_a_failed_copy_takes_nothing_from_the_container_that_came_instead(launch: Launch, tmp_path: Path) -> None:
    """Lost is not dead: it may be sending the very step that its replacement has committed meanwhile."""
    lost = await started(launch, spec=SLOW)
    instead = await started(launch, below=tmp_path / "instead", attempt=2, hdfs=lost.container.store)
    large, small = keras_archive(tmp_path / "large", 20_000_000), keras_archive(tmp_path / "small", 1000)
    lost.order(f"copy {large} model-60.keras")
    await lost.until(lambda: stored(lost), "some of it is there")
    instead.order(f"copy {small} model-60.keras")
    committed = await instead.master.uploaded(60)
    (directory(committed) / "manifest.json").write_text("{}")
    lost.master.stop(1, grace=1, checkpoint_seconds=0)
    await lost.master.first("settled")
    await lost.until(lambda: len(stored(lost)) <= 2, "what it had sent is removed")
    await lost.end()
    assert stored(lost) == [
        f"checkpoints/{directory(committed).name}/{name}" for name in ("manifest.json", "rank-0/model-60.keras")
    ]


@pytest.mark.long
async def test_a_failed_copy_does_not_remove_what_was_committed(launch: Launch) -> None:
    running = await started(launch, spec=SLOW)
    running.order("save 60 4000000")
    await running.until(lambda: stored(running), "some of it is there")
    [checkpoint] = (chain(running) / "checkpoints").iterdir()
    (checkpoint / "manifest.json").write_text("{}")
    await fail(running)
    assert (checkpoint / "manifest.json").exists()


async def fail(running: Running) -> None:
    """The copy of step 60, which changes on its way; returns when nothing more is done about it."""
    running.order("write weights-60/a anew")
    running.order("save 70")
    await running.master.uploaded(70)
    assert [uploaded.step for uploaded in uploads(running)] == [70]


async def test_a_store_that_does_not_do_is_tried_again(launch: Launch) -> None:
    running = await started(launch)
    chain(running).write_text("a file where a directory should be")
    running.order("save 70")
    await running.until(lambda: "is not on the store yet" in running.executor.stderr, "it has failed")
    assert is_alive((await running.master.first("started")).pid)
    chain(running).unlink()
    running.order("exit 2")
    running.master.answer(await running.master.uploaded(70))
    assert (await running.master.first("settled")).problem == ""


async def test_trouble_with_the_store_is_said_at_the_end(launch: Launch) -> None:
    timeouts = Timeouts(grace=Duration(5), checkpoint=Duration(1))
    running = await started(launch, spec=job(COMMAND, timeouts=timeouts))
    chain(running).write_text("a file where a directory should be")
    running.order("save 70")
    running.order("exit 2")
    assert (await running.master.first("exited")).exit_code == 2
    assert (await running.master.first("settled")).problem.endswith("chain is a file")


async def test_the_next_start_takes_over_what_was_not_copied(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 80")
    unanswered = await running.master.uploaded(80)
    running.order("exit 1")
    await running.master.first("exited")
    await running.begin(start=2, keep_checkpoints=True)
    _, again = await running.master.all_of("uploaded", 2)
    assert (again.step, again.start) == (80, 2)
    assert again.uri != unanswered.uri  # where the former start may still be at work
    running.master.answer(again)
    running.order("exit 0")
    first, second = await running.master.all_of("settled", 2)
    assert [first.problem, second.problem] == ["no time was left for uploading the checkpoint of step 80", ""]
    assert [each.start for each in (first, second)] == [1, 2]


@pytest.mark.parametrize(
    ("task", "role", "scope", "rank"),
    [
        ("worker:0", Role.WORKER, MirrorScope.LEADER, 0),
        ("worker:1", Role.WORKER, MirrorScope.LEADER, None),
        ("worker:0", Role.WORKER, MirrorScope.OFF, None),
        ("worker:1", Role.WORKER, MirrorScope.ALL, 1),
        ("worker:0", Role.PS, MirrorScope.ALL, None),
        ("worker:0", Role.EVALUATOR, MirrorScope.ALL, None),
    ],
)
async def test_whose_checkpoints_are_copied(
    launch: Launch, task: str, role: Role, scope: MirrorScope, rank: int | None
) -> None:
    tasks = {"worker": TaskSpec(command=COMMAND, instances=2, role=role)}
    if role is not Role.WORKER:
        tasks["chief"] = TaskSpec(command=COMMAND)
    running = await launch(job("", tasks=tasks, checkpoint=CheckpointSpec(mirror=scope)), task=task)
    await running.master.first("registration")
    others = [address("worker", index, 20000 + index, role=role.value) for index in (0, 1)]
    running.master.rendezvous(*others)
    await running.master.first("started")
    running.order("save 90")
    running.order("exit 1")
    if rank is None:
        await running.master.first("settled")
        assert kinds(running) == ["started", "exited", "settled"]
        return
    named = ""
    if scope is MirrorScope.ALL:
        named = await name(running, 90)
    uploaded = await running.master.uploaded(90)
    assert uris.name(uploaded.uri) == f"rank-{rank}"
    assert not named or uris.parent(uploaded.uri) == named
    running.master.answer(uploaded)
    assert (await running.master.first("settled")).problem == ""


async def name(running: Running, step: int, *, save: int = 1) -> str:
    """Once it is held, have it copied; returns its URI."""
    while step not in (held := (await running.master.all_of("held"))[-1]).steps:
        await running.master.all_of("held", len(await running.master.all_of("held")) + 1)
    uri = f"{running.container.chain_dir}/checkpoints/{directory_name(save, step)}"
    copy = tony_pb2.CopyCheckpoint(
        generation=held.generation, start=held.start, wanted=True, step=step, save=save, uri=uri
    )
    running.master.say(tony_pb2.ToExecutor(copy_checkpoint=copy))
    return uri


ALL = CheckpointSpec(mirror=MirrorScope.ALL)


async def test_with_all_ranks_the_master_names_what_is_copied(launch: Launch) -> None:
    """Not the newest: the newest that all ranks have."""
    running = await started(launch, spec=job(COMMAND, checkpoint=ALL))
    running.order("save 10")
    running.order("save 20")
    running.order("save 30")
    while (await running.master.all_of("held"))[-1].steps != [10, 20, 30]:
        await running.master.all_of("held", len(await running.master.all_of("held")) + 1)
    uri = await name(running, 20, save=7)
    uploaded = await running.master.uploaded(20)
    assert (uris.parent(uploaded.uri), uploaded.save) == (uri, 7)
    running.master.answer(uploaded)
    running.order("exit 1")
    last = await until_last(running)
    assert (list(last.steps), last.save) == ([30], 7), "what is older than what is committed is not offered any more"
    running.master.say(tony_pb2.ToExecutor(copy_checkpoint=tony_pb2.CopyCheckpoint(generation=1, start=1)))
    assert "every rank" in (await running.master.first("settled")).problem, "step 30 is lost, and that is told"
    assert [uploaded.step for uploaded in uploads(running)] == [20]


async def until_last(running: Running) -> tony_pb2.CheckpointsHeld:
    while not (held := (await running.master.all_of("held"))[-1]).last:
        await running.master.all_of("held", len(await running.master.all_of("held")) + 1)
    return held  # type: ignore[no-any-return]


async def test_what_is_named_and_gone_is_not_held_any_more(launch: Launch) -> None:
    running = await started(launch, spec=job(COMMAND, checkpoint=ALL))
    running.order("save 10")
    await running.master.first("held")
    running.order("remove step-10.tony.json")
    running.order("touch removed")
    await running.until_there("removed")
    await name(running, 10)
    _, second = await running.master.all_of("held", 2)
    assert list(second.steps) == []
    running.order("exit 1")
    assert (await running.master.first("settled")).problem == ""
    assert uploads(running) == []


async def test_a_master_that_comes_back_hears_what_is_held(launch: Launch) -> None:
    running = await started(launch, spec=job(COMMAND, checkpoint=ALL))
    running.order("save 10")
    await running.master.first("held")
    await running.lose_master()
    await running.meet(Master(APPLICATION, KEY))
    assert list((await running.master.first("held")).steps) == [10]
    await name(running, 10)
    running.master.answer(await running.master.uploaded(10))
    running.order("exit 0")
    assert (await running.master.first("settled")).problem == ""


async def test_with_all_ranks_a_save_without_a_step_is_told_to_be_lost(launch: Launch, tmp_path: Path) -> None:
    running = await started(launch, spec=job(COMMAND, checkpoint=ALL))
    running.order(f"copy {keras_archive(tmp_path / 'weights', 1000)} model.keras")
    running.order("exit 0")
    assert "must say its step" in (await running.master.first("settled")).problem


async def test_each_save_under_one_name_gets_to_the_store(launch: Launch, tmp_path: Path) -> None:
    """As in PyTorch's DDP tutorial, of which the first save alone was ever kept: it reports no steps."""
    running = await started(launch)
    for save in (1, 2, 3):
        archive = keras_archive(tmp_path / f"weights-{save}", 1000 + save)
        running.order(f"copy {archive} snapshot.keras")
        uploaded = (await running.master.all_of("uploaded", save))[-1]
        assert (uploaded.HasField("step"), uploaded.save, uploaded.entry) == (False, save, "snapshot.keras")
        assert place_of(directory(uploaded).name) == CheckpointName(save, None)
        assert (local_path(uploaded.uri) / "snapshot.keras").read_bytes() == archive.read_bytes()
        running.master.answer(uploaded)
    running.order("exit 0")
    assert (await running.master.first("settled")).problem == ""
    assert len(uploads(running)) == 3


async def test_a_save_that_comes_while_another_is_copied_is_copied_next(launch: Launch, tmp_path: Path) -> None:
    running = await started(launch)
    first, last = keras_archive(tmp_path / "first", 1000), keras_archive(tmp_path / "last", 2000)
    running.order(f"copy {first} snapshot.keras")
    unanswered = await running.master.first("uploaded")
    running.order(f"copy {last} snapshot.keras")
    running.order("touch saved")
    await running.until_there("saved")
    running.master.answer(unanswered)
    _, second = await running.master.all_of("uploaded", 2)
    assert second.save == 2
    assert (local_path(second.uri) / "snapshot.keras").read_bytes() == last.read_bytes()


async def test_what_the_program_leaves_last_is_kept(launch: Launch, tmp_path: Path) -> None:
    running = await started(launch)
    running.master.grants = True
    for save in range(5):
        running.order(f"copy {keras_archive(tmp_path / f'weights-{save}', 1000 + save)} snapshot.keras")
    running.order("exit 0")
    await running.master.first("settled")
    kept = local_path(uploads(running)[-1].uri) / "snapshot.keras"
    assert kept.read_bytes() == (tmp_path / "weights-4").read_bytes()


async def test_trouble_with_the_store_is_told_while_it_lasts(launch: Launch) -> None:
    running = await started(launch)
    chain(running).write_text("a file where a directory should be")
    running.order("save 70")
    beat = await running.master.heartbeat_with(lambda beat: beat.trouble)
    assert beat.trouble.startswith("its newest checkpoint does not get to the store since ")
    assert beat.trouble.endswith("chain is a file")
    chain(running).unlink()
    running.master.grants = True
    await running.master.uploaded(70)
    seen = len(running.master.received)
    await running.until(
        lambda: any(
            message.WhichOneof("kind") == "heartbeat" and not message.heartbeat.trouble
            for message in running.master.received[seen:]
        ),
        "nothing is wrong any more",
    )


async def test_a_checkpoint_that_is_cut_short_is_not_copied(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 100")
    running.master.answer(await running.master.uploaded(100))
    running.order('write step-110.tony.json {"step":110,"entry":"w","files":[{"path":"w","size":9}]}')
    running.order("write w half")
    running.order("exit 1")
    assert (await running.master.first("settled")).problem == ""
    assert [uploaded.step for uploaded in uploads(running)] == [100]


@pytest.mark.long
async def test_a_file_that_is_rewritten_more_often_than_it_can_be_sent_gets_there(launch: Launch) -> None:
    running = await started(launch, spec=SLOW)
    running.order("rewrite 2000000")
    uploaded = await running.master.first("uploaded")
    sent = (Path(uploaded.uri[7:]) / "weights").read_bytes()
    assert sent == trainer.content(uploaded.step, "a", 2_000_000)
    assert {file.path: file.checksum for file in uploaded.files}["weights"] == checksum(sent)


async def test_nobody_waits_for_copies_when_yarn_ends_the_container(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 40")
    await running.master.uploaded(40)
    running.executor.process.send_signal(signal.SIGTERM)
    assert await running.executor.wait() == 143


async def test_the_heartbeats_say_what_is_copied(launch: Launch) -> None:
    running = await started(launch, spec=SLOW)
    running.order("save 120 20000000")
    beat = await running.master.heartbeat_with(lambda beat: "checkpoint" in beat.activity)
    assert beat.activity == "running, uploading the checkpoint of step 120"
    running.master.stop(1, grace=1, checkpoint_seconds=0)
    assert (
        await running.master.first("settled")
    ).problem == "no time was left for uploading the checkpoint of step 120"


def many_files(number: int, longest: int) -> Snapshot:
    checkpoint = LocalCheckpoint(1, "manifest", "a", ())
    names = (f"{each:0{longest}}" for each in range(number))
    return Snapshot(checkpoint, Path("/nowhere"), tuple(SnapshotFile(name, Path(name), 1 << 20) for name in names))


def test_more_files_than_can_be_told_of_are_found_before_they_are_copied() -> None:
    """Seen: 200,000 files were copied to the store, removed there, and copied again."""
    checkpoint_uploader._check_number(many_files(200_000, 30))
    with pytest.raises(checkpoint_uploader._TooManyFiles, match=r"it has 200,?000 files.*fewer and larger files"):
        checkpoint_uploader._check_number(many_files(200_000, 60))


@given(st.lists(st.tuples(st.text(min_size=1), st.integers(0, (1 << 63) - 1)), max_size=50))
def test_what_is_checked_before_is_no_less_than_what_is_said_then(files: list[tuple[str, int]]) -> None:
    named = [(path.encode("utf-8", "replace").decode(), size) for path, size in files]
    said = tony_pb2.CheckpointUploaded(
        files=[tony_pb2.CheckpointFile(path=path, size=size, checksum="crc32:0a1b2c3d") for path, size in named]
    )
    assert said.ByteSize() <= sum(len(path.encode()) + checkpoint_uploader._FILE for path, _ in named)
