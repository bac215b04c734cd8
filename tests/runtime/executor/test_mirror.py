"""The mirror of a real executor: snapshots on their way to the storage, while a process runs and after it."""

from __future__ import annotations

import os
import signal
import sys
import zipfile
from pathlib import Path

import grpc
import pytest

from tests.checkpoints import checksum
from tests.files import files_below
from tests.runtime.executor import trainer
from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.containers import APPLICATION, KEY, is_alive, job
from tests.runtime.executor.master import Master, address
from tests.runtime.executor.stored import commit_uploaded, content
from tony_provider.runtime.artifacts.manifest import is_object_name
from tony_provider.runtime.checkpoint.stored_checkpoint import save_of
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.contract import WORK_DIR
from tony_provider.runtime.jobspec.model import CheckpointSpec, Duration, Memory, MirrorScope, Role, TaskSpec, Timeouts
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.storage import local_path, uris

COMMAND = f"exec {sys.executable} {Path(trainer.__file__)}"
SLOW = job(COMMAND, checkpoint=CheckpointSpec(bandwidth=Memory(1)))  # in MiB a second


def uploads(running: Running) -> list[tony_pb2.CheckpointUploaded]:
    return [message.uploaded for message in running.master.received if message.WhichOneof("kind") == "uploaded"]


def kinds(running: Running) -> list[str]:
    """The kinds of all messages of the executor, without heartbeats and the states of the checkpoint directory."""
    said = [str(message.WhichOneof("kind")) for message in running.master.received]
    return [kind for kind in said if kind not in ("heartbeat", "registration", "checkpoint_state")]


async def started(launch: Launch, *, orders: bool = True, **container: object) -> Running:
    """A trainer that runs. Without ``orders``, the master orders no snapshot by itself."""
    spec = container.pop("spec", None) or job(COMMAND)
    running = await launch(spec, **container)
    if not orders:
        running.master.chain = ""
    await running.begin()
    await running.master.first("started")
    return running


async def saved(running: Running, step: int) -> tony_pb2.CheckpointState:
    """Save a checkpoint, and wait until the executor reports it."""
    running.order(f"save {step}")
    return await running.master.state(lambda state: state.ready and f"weights-{step}" in news(state))


def news(state: tony_pb2.CheckpointState) -> list[str]:
    return [entry.name for entry in state.entries if entry.news]


def take(running: Running, state: tony_pb2.CheckpointState, **more: object) -> str:
    return running.master.take(state, running.container.chain_dir, **more)


def chain(running: Running) -> Path:
    return local_path(running.container.chain_dir)


def stored(running: Running) -> list[str]:
    return files_below(chain(running))


def objects(*uploaded: tony_pb2.CheckpointUploaded) -> list[str]:
    """The paths of their stored objects below the chain."""
    return sorted({f"objects/{name}" for each in uploaded for name in each.objects})


def sent(running: Running) -> list[str]:
    """The names of all objects, complete or not."""
    return files_below(chain(running) / "objects")


def paths(uploaded: tony_pb2.CheckpointUploaded) -> list[str]:
    return [entry.path for entry in uploaded.entries]


def keras_archive(path: Path, size: int) -> Path:
    """A checkpoint that is one file."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", bytes(size))
    return path


# ---- while the process runs ----------------------------------------------------------------------------------------


async def test_a_complete_save_is_stored_while_the_process_runs(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 120 3000000")
    uploaded = await running.master.first("uploaded")
    assert (uploaded.generation, uploaded.start, uploaded.step, uploaded.reported) == (1, 1, 120, False)
    assert uris.parent(uploaded.uri) == f"{running.container.chain_dir}/checkpoints"
    assert (uploaded.save, save_of(uris.name(uploaded.uri)), uploaded.saved_ms > 0) == (1, 1, True)
    assert (uploaded.format, uploaded.entry) == ("manifest", "weights-120")
    entries = {entry.path: entry for entry in uploaded.entries}
    assert list(entries) == ["step-120.tony.json", "weights-120", "weights-120/a", "weights-120/b"]
    assert entries["weights-120"].kind == "directory"
    for part in ("a", "b"):
        data = trainer.content(120, part, 3_000_000)
        assert entries[f"weights-120/{part}"].size == 3_000_000
        assert entries[f"weights-120/{part}"].checksum == checksum(data)
        assert content(uploaded)[f"weights-120/{part}"] == data
    assert stored(running) == objects(uploaded)
    assert "exited" not in kinds(running)
    running.master.answer(uploaded)
    state = await running.master.state(lambda state: state.base)
    assert (state.base, state.save, any(entry.news for entry in state.entries)) == (uploaded.uri, 1, False)
    running.order("exit 0")
    assert (await running.master.first("settled")).problem == ""
    assert kinds(running) == ["started", "uploaded", "exited", "settled"]
    assert await running.end() == 0


async def test_only_new_files_are_sent(launch: Launch) -> None:
    running = await started(launch)
    running.master.grants = True
    running.order("save 20 1000000")
    first = await running.master.uploaded(20)
    running.order("save 30 1000000")
    second = await running.master.uploaded(30)
    running.order("exit 3")
    assert (await running.master.first("settled")).problem == ""
    assert {path.partition("/")[0] for path in paths(second)} == {
        f"{name}-{step}{end}" for step in (20, 30) for name, end in (("weights", ""), ("step", ".tony.json"))
    }
    assert set(first.objects) < set(second.objects)
    assert stored(running) == objects(first, second)
    places = [{entry.path: (entry.object, entry.offset) for entry in each.entries} for each in (first, second)]
    assert places[0].items() <= places[1].items()


async def test_a_save_of_an_unknown_format_is_stored_once_its_files_are_closed(launch: Launch) -> None:
    running = await started(launch)
    running.order("hold state.bin half")
    await running.master.state(lambda state: state.blocker == "state.bin is open for writing")
    running.order("close")
    running.order("write optimizer.bin whole")
    uploaded = await running.master.first("uploaded")
    assert content(uploaded) == {"state.bin": b"half", "optimizer.bin": b"whole"}
    assert (uploaded.format, uploaded.entry, uploaded.HasField("step")) == ("", "", False)


async def test_a_save_that_comes_during_an_upload_is_stored_next(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 10")
    unanswered = await running.master.uploaded(10)
    running.order("save 20")
    running.order("touch saved")
    await running.until_there("saved")
    running.master.answer(unanswered)
    second = await running.master.uploaded(20)
    assert second.save == 2
    assert content(second)["weights-20/a"] == trainer.content(20, "a", 1000)


async def test_each_save_under_one_name_is_stored(launch: Launch, tmp_path: Path) -> None:
    """As in PyTorch's DDP tutorial, which reports no steps: the last save is stored at the end of the program."""
    running = await started(launch)
    archives = [keras_archive(tmp_path / f"weights-{number}", 1000 + number) for number in (1, 2)]
    for number, archive in enumerate(archives, 1):
        running.order(f"copy {archive} snapshot.keras")
        if number == len(archives):
            running.order("exit 0")
        uploaded = (await running.master.all_of("uploaded", number))[-1]
        assert (uploaded.HasField("step"), uploaded.save, uploaded.entry) == (False, number, "snapshot.keras")
        assert content(uploaded) == {"snapshot.keras": archive.read_bytes()}
        running.master.answer(uploaded)
    assert (await running.master.first("settled")).problem == ""


async def test_a_save_that_is_too_short_for_its_manifest_is_not_stored(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 100")
    running.master.answer(await running.master.uploaded(100))
    running.order('write step-110.tony.json {"step":110,"entry":"w","files":[{"path":"w","size":9}]}')
    running.order("write w half")
    running.order("exit 1")
    assert (await running.master.first("settled")).problem == ""
    assert [uploaded.step for uploaded in uploads(running)] == [100]


@pytest.mark.long
async def test_a_file_that_is_rewritten_more_often_than_it_can_be_sent_is_stored(launch: Launch) -> None:
    running = await started(launch, spec=SLOW)
    running.order("rewrite 2000000")
    uploaded = await running.master.first("uploaded")
    data = content(uploaded)["weights"]
    assert data == trainer.content(uploaded.step, "a", 2_000_000)
    assert {entry.path: entry.checksum for entry in uploaded.entries}["weights"] == checksum(data)


async def test_heartbeats_name_the_upload(launch: Launch) -> None:
    running = await started(launch, spec=SLOW)
    running.order("save 120 20000000")
    beat = await running.master.heartbeat_with(lambda beat: "checkpoint" in beat.activity)
    assert beat.activity == "running, uploading checkpoint 1"
    running.master.stop(1, grace=1, checkpoint_seconds=0)
    assert (await running.master.first("settled")).problem == "no time was left for uploading checkpoint 1"


async def test_a_stopped_upload_leaves_nothing_in_the_storage(launch: Launch) -> None:
    running = await started(launch, spec=SLOW)
    running.order("save 120 20000000")
    await running.until(lambda: any(map(is_object_name, sent(running))), "one of its objects is complete")
    running.master.stop(1, grace=1, checkpoint_seconds=0)
    await running.master.first("settled")
    await running.until(lambda: stored(running) == [], "its objects are removed")
    assert await running.end() == 0


# ---- orders --------------------------------------------------------------------------------------------------------


async def test_nothing_is_uploaded_without_an_order(launch: Launch) -> None:
    running = await started(launch, orders=False)
    state = await saved(running, 10)
    assert (state.generation, state.start, state.last, state.blocker, state.base) == (1, 1, False, "", "")
    entries = {entry.name: entry for entry in state.entries}
    assert sorted(entries) == ["step-10.tony.json", "weights-10"]
    assert all(entry.news and entry.first for entry in entries.values())
    assert entries["step-10.tony.json"].step == 10
    state = await saved(running, 20)
    assert uploads(running) == []
    uri = take(running, state, save=7)
    uploaded = await running.master.first("uploaded")
    assert (uploaded.uri, uploaded.save, uploaded.step) == (uri, 7, 20)


async def test_an_order_for_a_former_state_or_start_is_not_carried_out(launch: Launch) -> None:
    running = await started(launch, orders=False)
    former = await saved(running, 10)
    newer = await saved(running, 20)
    take(running, newer, start=7, generation=7)
    take(running, former)
    # The executor reports the present state again, so that the master does not wait for the upload.
    states = [newer]
    while len(states) < 2:
        await running.master.all_of("checkpoint_state", len(await running.master.all_of("checkpoint_state")) + 1)
        found = await running.master.all_of("checkpoint_state")
        states = [state for state in found if state.version == newer.version]
    assert uploads(running) == []
    uri = take(running, states[-1])
    assert (await running.master.first("uploaded")).uri == uri


async def test_the_master_names_entries_to_leave_out(launch: Launch) -> None:
    running = await started(launch, orders=False)
    await saved(running, 10)
    take(running, await saved(running, 20), leave_out=["weights-10", "step-10.tony.json"])
    uploaded = await running.master.first("uploaded")
    assert paths(uploaded) == ["step-20.tony.json", "weights-20", "weights-20/a", "weights-20/b"]


async def test_a_new_master_receives_the_state(launch: Launch) -> None:
    running = await started(launch, orders=False)
    state = await saved(running, 10)
    await running.lose_master()
    await running.meet(Master(APPLICATION, KEY, chain=running.container.chain_dir))
    assert await running.master.first("checkpoint_state") == state
    running.master.answer(await running.master.uploaded(10))
    running.order("exit 0")
    assert (await running.master.first("settled")).problem == ""


@pytest.mark.parametrize(
    ("task", "role", "scope", "rank"),
    [
        ("worker:0", Role.WORKER, MirrorScope.LEADER, 0),
        ("worker:1", Role.WORKER, MirrorScope.LEADER, None),
        ("worker:0", Role.WORKER, MirrorScope.OFF, None),
        ("worker:1", Role.WORKER, MirrorScope.AUTO, 1),
        ("worker:1", Role.WORKER, MirrorScope.ALL, 1),
        ("worker:0", Role.PS, MirrorScope.AUTO, None),
        ("worker:0", Role.EVALUATOR, MirrorScope.AUTO, None),
    ],
)
async def test_whose_checkpoints_are_stored(
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
    running.order("exit 0")
    if rank is None:
        await running.master.first("settled")
        assert kinds(running) == ["started", "exited", "settled"]
        assert not any(message.WhichOneof("kind") == "checkpoint_state" for message in running.master.received)
        return
    uploaded = await running.master.uploaded(90)
    assert all(name.startswith(f"000001-{rank}-") for name in uploaded.objects)
    running.master.answer(uploaded)
    assert (await running.master.first("settled")).problem == ""


# ---- the end of the process ----------------------------------------------------------------------------------------


async def test_the_last_save_is_stored_after_the_failure_is_reported(launch: Launch) -> None:
    running = await started(launch, orders=False)
    await saved(running, 40)
    running.order("exit 3")
    assert (await running.master.first("exited")).exit_code == 3
    last = await running.master.state(lambda state: state.last)
    assert (last.ready, news(last)) == (True, ["step-40.tony.json", "weights-40"])
    assert "settled" not in kinds(running)
    take(running, last)
    uploaded = await running.master.uploaded(40)
    assert "weights-40/a" in paths(uploaded)
    running.master.answer(uploaded)
    settled = await running.master.first("settled")
    assert (settled.start, settled.problem) == (1, "")
    assert kinds(running) == ["started", "exited", "uploaded", "settled"]


async def test_success_is_reported_once_the_last_save_is_stored(launch: Launch) -> None:
    running = await started(launch, orders=False)
    await saved(running, 40)
    running.order("write notes mine")  # without a manifest: after a success, the directory is stored as it is
    running.order("exit 0")
    last = await running.master.state(lambda state: state.last)
    assert news(last) == ["notes", "step-40.tony.json", "weights-40"]
    take(running, last)
    uploaded = await running.master.uploaded(40)
    assert content(uploaded)["notes"] == b"mine"
    assert "exited" not in kinds(running)
    running.master.answer(uploaded)
    await running.master.first("settled")
    assert kinds(running) == ["started", "uploaded", "exited", "settled"]


async def test_the_last_of_many_saves_is_stored(launch: Launch, tmp_path: Path) -> None:
    running = await started(launch)
    running.master.grants = True
    for save in range(5):
        running.order(f"copy {keras_archive(tmp_path / f'weights-{save}', 1000 + save)} snapshot.keras")
    running.order("exit 0")
    await running.master.first("settled")
    assert content(uploads(running)[-1]) == {"snapshot.keras": (tmp_path / "weights-4").read_bytes()}


@pytest.mark.parametrize("in_place", [False, True])
async def test_a_save_that_a_signal_cuts_short_is_not_stored(launch: Launch, in_place: bool) -> None:
    running = await started(launch)
    running.order("save 10")
    running.master.answer(await running.master.uploaded(10))
    await running.master.state(lambda state: state.base)
    running.order(f"hold {'weights-10/a' if in_place else 'weights-20'} half")
    running.order("touch held")
    await running.until_there("held")
    os.kill((await running.master.first("started")).pid, signal.SIGKILL)
    assert (await running.master.first("exited")).signal == signal.SIGKILL
    assert (await running.master.first("settled")).problem == ""
    assert len(uploads(running)) == 1


async def test_a_stop_bounds_the_last_upload(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 40")
    uploaded = await running.master.uploaded(40)  # and no answer
    running.master.stop(1, grace=5, checkpoint_seconds=0.5)
    exited = await running.master.first("exited")
    assert (exited.stopped, exited.start) == (True, 1)
    settled = await running.master.first("settled")
    assert settled.problem == "no time was left for uploading checkpoint 1"
    assert await running.end() == 0
    assert stored(running) == objects(uploaded), "the grant may have been lost on its way"


async def test_the_job_bounds_the_last_upload(launch: Launch) -> None:
    timeouts = Timeouts(grace=Duration(5), checkpoint=Duration(0.5))
    running = await started(launch, spec=job(COMMAND, timeouts=timeouts))
    running.order("save 40")
    await running.master.uploaded(40)
    running.order("exit 1")
    settled = await running.master.first("settled")
    assert settled.problem == "no time was left for uploading checkpoint 1"


async def test_a_stop_that_leaves_no_time_starts_no_upload(launch: Launch) -> None:
    running = await started(launch, orders=False)
    await saved(running, 40)
    running.master.stop(1, grace=5, checkpoint_seconds=0)
    settled = await running.master.first("settled")
    assert settled.problem == "no time was left for an inspection of the checkpoint directory"
    assert await running.end() == 0
    assert uploads(running) == []


async def test_a_start_that_stores_nothing_more_ends_with_the_reason(launch: Launch) -> None:
    running = await started(launch, orders=False)
    await saved(running, 30)
    running.order("exit 1")
    await running.master.state(lambda state: state.last)
    running.master.take_no_more(1, "worker:1 is gone")
    assert (await running.master.first("settled")).problem == "worker:1 is gone"
    assert uploads(running) == []


async def test_an_executor_that_is_not_wanted_any_more_ends(launch: Launch) -> None:
    """Its task has another container, as after a network failure, and no master grants what it has not stored yet."""
    running = await started(launch, orders=False)
    await saved(running, 40)
    await running.lose_master()
    await running.meet(Master(APPLICATION, KEY, refusal=grpc.StatusCode.PERMISSION_DENIED))
    assert await running.executor.wait() == contract.EXIT_REFUSED


async def test_shutdown_stores_the_last_save(launch: Launch) -> None:
    running = await started(launch, orders=False)
    await saved(running, 50)
    running.master.chain = running.container.chain_dir
    running.master.shutdown()
    running.master.answer(await running.master.uploaded(50))
    assert (await running.master.first("settled")).problem == ""
    assert await running.executor.wait() == 0


async def test_no_upload_delays_the_end_when_yarn_ends_the_container(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 40")
    await running.master.uploaded(40)
    running.executor.process.send_signal(signal.SIGTERM)
    assert await running.executor.wait() == 143


async def test_the_next_start_stores_what_the_former_did_not(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 80")
    unanswered = await running.master.uploaded(80)
    running.order("exit 1")
    await running.master.first("exited")
    await running.begin(start=2, keep_checkpoints=True)
    again = await running.master.first_where("uploaded", lambda uploaded: uploaded.start == 2)
    assert again.step == 80
    assert again.uri != unanswered.uri  # where the former start may still be at work
    assert not set(again.objects) & set(unanswered.objects)
    running.master.answer(again)
    running.order("exit 0")
    first, second = await running.master.all_of("settled", 2)
    assert [first.problem, second.problem] == ["no time was left for uploading checkpoint 1", ""]
    assert [each.start for each in (first, second)] == [1, 2]


# ---- refusals ------------------------------------------------------------------------------------------------------


async def test_a_refused_snapshot_is_removed_and_ordered_again(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 60")
    first = await running.master.uploaded(60)
    running.master.chain = ""
    running.master.answer(first, granted=False, reason="not now")
    await running.until(lambda: stored(running) == [], "its objects are removed")
    state = (await running.master.all_of("checkpoint_state", 2))[1]
    assert news(state) == ["step-60.tony.json", "weights-60"]
    take(running, state)
    second = (await running.master.all_of("uploaded", 2))[1]
    assert (second.save, second.uri != first.uri) == (2, True)
    assert content(second)["weights-60/a"] == trainer.content(60, "a", 1000)


async def test_a_refusal_is_the_problem_at_the_end(launch: Launch) -> None:
    timeouts = Timeouts(grace=Duration(5), checkpoint=Duration(1))
    running = await started(launch, spec=job(COMMAND, timeouts=timeouts))
    running.order("save 60")
    uploaded = await running.master.uploaded(60)
    running.master.chain = ""
    running.master.answer(uploaded, granted=False, reason="another application owns the chain")
    await running.master.all_of("checkpoint_state", 2)
    running.order("exit 1")
    settled = await running.master.first("settled")
    assert settled.problem == "the application master rejected the checkpoint: another application owns the chain"
    assert stored(running) == []


async def test_all_files_are_sent_again_if_the_storage_has_lost_some(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 60")
    first = await running.master.uploaded(60)
    running.master.answer(first)
    running.order("save 70")
    second = await running.master.uploaded(70)
    assert set(first.objects) < set(second.objects)
    running.master.answer(second, granted=False, reason="objects are missing", resend=True)
    third = (await running.master.all_of("uploaded", 3))[2]
    assert not set(third.objects) & {*first.objects, *second.objects}
    assert content(third) == {
        **content(first), **{path: data for path, data in content(third).items() if "70" in path}
    }  # fmt: skip
    assert stored(running) == objects(first, third), "objects that a committed checkpoint has are not removed"


async def test_what_was_committed_stays_when_the_answer_says_otherwise(launch: Launch) -> None:
    running = await started(launch)
    running.order("save 60")
    uploaded = await running.master.uploaded(60)
    commit_uploaded(uploaded)
    running.master.answer(uploaded, granted=False, reason="no answer from the storage")
    second = (await running.master.all_of("uploaded", 2))[1]
    running.master.answer(second)
    running.order("exit 1")
    await running.master.first("settled")
    assert set(objects(uploaded)) < set(stored(running))


@pytest.mark.long
async def test_a_failed_upload_removes_nothing_of_the_container_that_came_instead(
    launch: Launch, tmp_path: Path
) -> None:
    """A lost container may still run, and send the very save that its replacement has committed meanwhile."""
    lost = await started(launch, spec=SLOW)
    instead = await started(launch, below=tmp_path / "instead", attempt=2, hdfs=lost.container.store)
    lost.order("save 60 20000000")
    await lost.until(lambda: stored(lost), "some of it is there")
    instead.order("save 60 1000")
    committed = await instead.master.uploaded(60)
    uri = commit_uploaded(committed)
    lost.master.stop(1, grace=1, checkpoint_seconds=0)
    await lost.master.first("settled")
    expected = [f"checkpoints/{uris.name(uri)}/manifest.json", *objects(committed)]
    await lost.until(lambda: stored(lost) == expected, "what it had sent is removed")
    await lost.end()
    assert stored(lost) == expected


# ---- a storage that fails ------------------------------------------------------------------------------------------


async def test_a_failed_upload_is_repeated(launch: Launch) -> None:
    running = await started(launch)
    chain(running).write_text("a file where a directory should be")
    running.order("save 70")
    await running.until(lambda: "is not stored yet" in running.executor.stderr, "it has failed")
    assert is_alive((await running.master.first("started")).pid)
    chain(running).unlink()
    running.order("exit 2")
    running.master.answer(await running.master.uploaded(70))
    assert (await running.master.first("settled")).problem == ""


async def test_a_storage_problem_is_reported_at_the_end(launch: Launch) -> None:
    timeouts = Timeouts(grace=Duration(5), checkpoint=Duration(1))
    running = await started(launch, spec=job(COMMAND, timeouts=timeouts))
    chain(running).write_text("a file where a directory should be")
    running.order("save 70")
    await running.until(lambda: "is not stored yet" in running.executor.stderr, "it has failed")
    running.order("exit 2")
    assert (await running.master.first("exited")).exit_code == 2
    assert (await running.master.first("settled")).problem.endswith("chain is a file")


async def test_a_directory_above_the_size_limit_is_reported_within_a_look(launch: Launch) -> None:
    running = await started(launch, spec=job(COMMAND, checkpoint=CheckpointSpec(max_size=Memory(1))))
    running.master.grants = True
    running.order("save 70 700000")
    beat = await running.master.heartbeat_with(lambda beat: beat.trouble)
    assert beat.trouble.startswith("its newest checkpoint has not been stored since ")
    assert "more than checkpoint.max_size (1 MiB). The largest entries are weights-70 (1.3 MiB)" in beat.trouble
    assert uploads(running) == []
    running.order("exit 0")
    assert "checkpoint.max_size" in (await running.master.first("settled")).problem


async def test_excluded_files_are_not_sent_and_named_once(launch: Launch) -> None:
    running = await started(launch, spec=job(COMMAND, checkpoint=CheckpointSpec(exclude=["*.cache"])))
    running.master.grants = True
    running.order("write data.cache 12345")
    for step in (70, 80):
        running.order(f"save {step} 1000")
        await running.master.uploaded(step)
    assert "data.cache" not in paths(uploads(running)[-1])
    running.order("exit 0")
    await running.master.first("settled")
    lines = (running.container.directory / WORK_DIR / "output.log").read_text().splitlines()
    assert lines.count("[tony] checkpoint.exclude leaves 1 file (5 B) out of checkpoints: data.cache") == 1


async def test_a_storage_problem_is_reported_while_it_lasts(launch: Launch) -> None:
    running = await started(launch)
    chain(running).write_text("a file where a directory should be")
    running.order("save 70")
    beat = await running.master.heartbeat_with(lambda beat: beat.trouble)
    assert beat.trouble.startswith("its newest checkpoint has not been stored since ")
    assert beat.trouble.endswith("chain is a file")
    chain(running).unlink()
    running.master.grants = True
    await running.master.uploaded(70)
    await running.until_no_trouble()
