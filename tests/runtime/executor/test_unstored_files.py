"""What a real executor reports of files that nothing stores, while the program runs and at its end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.runtime.executor import trainer
from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.containers import job
from tests.runtime.executor.master import address
from tony_provider.runtime.frameworks.base import MAIN_PORT
from tony_provider.runtime.jobspec.model import CheckpointSpec, MirrorScope, Role, TaskSpec
from tony_provider.runtime.protocol import tony_pb2

# The times are short, so that the tests do not wait for minutes.
IMPATIENT = """
from tony_provider.runtime.executor import checkpoint_mirror, unstored_files
unstored_files._INTERVAL, unstored_files._PATIENCE_NS, checkpoint_mirror._PATIENCE = 0.5, 4 * 10**9, 3.0
import runpy
runpy.run_module("tony_provider.runtime.executor", run_name="__main__")
"""
TRAINER = f"exec {sys.executable} {Path(trainer.__file__)}"
TWICE = "echo 1 > model.pt; sleep 4; echo 2 > new; mv new model.pt; sleep 60"


async def started(launch: Launch, command: str, **container: Any) -> Running:
    checkpoint = CheckpointSpec(mirror=container.pop("mirror", MirrorScope.AUTO), shared=container.pop("shared", False))
    spec = container.pop("spec", job(command, checkpoint=checkpoint))
    running = await launch(spec, launcher=(sys.executable, "-c", IMPATIENT), **container)
    await running.begin()
    await running.master.first("started")
    return running


async def notice(running: Running, text: str) -> str:
    """The first notice with this text while the program runs."""
    beat = await running.master.heartbeat_with(lambda beat: any(text in each for each in beat.notices))
    return next(each for each in beat.notices if text in each)


async def trouble(running: Running, text: str) -> str:
    beat: tony_pb2.Heartbeat = await running.master.heartbeat_with(lambda beat: text in beat.trouble)
    return beat.trouble


# ---- the working directory -----------------------------------------------------------------------------------------


async def test_saves_in_the_working_directory_are_reported_while_the_program_runs(launch: Launch) -> None:
    running = await started(launch, "mkdir checkpoint-10; echo {} > checkpoint-10/trainer_state.json; sleep 60")
    said = await notice(running, "its working directory (checkpoint-10/trainer_state.json)")
    assert 'TrainingArguments(output_dir=os.environ["TONY_CHECKPOINT_DIR"])' in said


async def test_a_file_that_is_saved_twice_is_reported(launch: Launch) -> None:
    running = await started(launch, TWICE)
    assert "have the program write" in await notice(running, "its working directory (model.pt)")


async def test_a_program_that_goes_to_another_directory_is_found(launch: Launch) -> None:
    running = await started(launch, f"mkdir -p deep/er; cd deep/er; {TWICE}")
    await notice(running, "its working directory (deep/er/model.pt)")


async def test_copies_of_what_is_saved_are_not_reported(launch: Launch) -> None:
    copies = "sleep 1; cp model.pt $TONY_CHECKPOINT_DIR/new; mv $TONY_CHECKPOINT_DIR/new $TONY_CHECKPOINT_DIR/model.pt"
    running = await started(launch, f"for i in 1 2 3; do echo $i > model.pt; {copies}; sleep 3; done")
    running.master.grants = True
    settled = await running.master.first("settled")
    assert (list(settled.notices), settled.unstored) == ([], 0)


async def test_copies_that_follow_what_is_saved_are_not_reported(launch: Launch) -> None:
    """MLflow and others copy each checkpoint of transformers after it was saved."""
    save = "mkdir $TONY_CHECKPOINT_DIR/checkpoint-10; echo 1 > $TONY_CHECKPOINT_DIR/checkpoint-10/model.safetensors"
    running = await started(launch, f"{save}; sleep 1; mkdir mlruns; cp -r $TONY_CHECKPOINT_DIR/* mlruns; sleep 1")
    running.master.grants = True
    settled = await running.master.first("settled")
    assert (list(settled.notices), settled.unstored) == ([], 0)


async def test_a_program_that_ends_at_once_is_reported_at_its_end(launch: Launch) -> None:
    running = await started(launch, "mkdir step-1; echo 1 > step-1/model.bin")
    settled = await running.master.first("settled")
    assert "its working directory (step-1/model.bin)" in settled.notices[0]
    assert settled.unstored == 0, "only files of its checkpoint and model directories count"


# ---- tasks that take no part ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mirror", "reason"),
    [
        (
            MirrorScope.LEADER,
            "checkpoint.mirror is leader. If the files of all ranks are needed, set it to auto",
        ),
        (MirrorScope.OFF, "checkpoint.mirror is off. Set it to auto, or write to TONY_CHECKPOINT_URI"),
    ],
)
async def test_a_task_whose_files_are_not_stored_says_so(launch: Launch, mirror: MirrorScope, reason: str) -> None:
    command = "cd $TONY_CHECKPOINT_DIR; echo 1 > a; sleep 5; echo 1 > b; echo 1 > c"
    running = await started(launch, command, mirror=mirror, task="worker:1")
    first = await notice(running, reason)
    assert first.startswith("1 file that it wrote is not stored (TONY_CHECKPOINT_DIR: a)")
    settled = await running.master.first("settled")
    assert settled.notices[0].startswith("3 files that it wrote are not stored (TONY_CHECKPOINT_DIR: a, b, c)")
    assert (settled.unstored, settled.problem) == (3, "")


async def test_rank_0_stores_the_shared_directory_for_all(launch: Launch) -> None:
    running = await started(launch, "echo 1 > $TONY_CHECKPOINT_DIR/a; sleep 3", shared=True, task="worker:1")
    settled = await running.master.first("settled")
    assert (list(settled.notices), settled.unstored, settled.problem) == ([], 0, "")


async def test_a_parameter_server_whose_files_are_not_stored_says_so(launch: Launch) -> None:
    server = TaskSpec(command="echo 1 > $TONY_CHECKPOINT_DIR/a; sleep 60", role=Role.PS)
    spec = attrs.evolve(job(""), tasks={"server": server, "worker": TaskSpec(command="true", instances=2)})
    running = await launch(spec, launcher=(sys.executable, "-c", IMPATIENT), task="server:0")
    own = (await running.master.first("registration")).ports[MAIN_PORT]
    running.master.rendezvous(address("worker", 0, 20001), address("server", 0, own, role="ps"))
    await notice(running, "because tasks with the role ps do not contribute to checkpoints")


async def test_models_of_other_ranks_are_counted(launch: Launch) -> None:
    running = await started(launch, "echo 1 > $TONY_MODEL_DIR/model.pt", task="worker:1")
    settled = await running.master.first("settled")
    assert (list(settled.notices), settled.unstored) == ([], 1)


# ---- what prevents a snapshot --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "reason", "remedy"),
    [
        ("exec 3> state.bin; echo 1 >&3; sleep 60", "state.bin is open for writing", "close it after each save"),
        (
            "i=0; while sleep 0.3; do i=$((i+1)); echo $i > a-$((i%7)).bin; echo $i > b-$((i%5)).bin; done",
            "was changed less than 3 s ago",
            "tony_sdk.commit_checkpoint(step, path)",
        ),
        (
            "while sleep 0.3; do echo 1 > model.pt.tmp; done",
            "model.pt.tmp has the name of a temporary file",
            "rename it when it is complete",
        ),
    ],
)
async def test_what_prevents_a_snapshot_is_named_with_the_remedy(
    launch: Launch, command: str, reason: str, remedy: str
) -> None:
    running = await started(launch, f"cd $TONY_CHECKPOINT_DIR; {command}")
    said = await trouble(running, reason)
    assert said.startswith("its newest checkpoint has not been stored since ")
    assert remedy in said


async def test_what_a_snapshot_leaves_out_is_named_once(launch: Launch) -> None:
    command = "ln -s /etc/passwd a; mkfifo b; for i in 1 2 3 4; do ln -s /etc c$i; done; echo 1 > model.bin; sleep 60"
    running = await started(launch, f"cd $TONY_CHECKPOINT_DIR; {command}")
    running.master.grants = True
    said = await notice(running, "; and others")
    assert said.startswith("checkpoints do not contain everything in TONY_CHECKPOINT_DIR: ")
    assert "it is a link that leads out of the directory, to /etc" in said
    assert said.count("; ") == 3, "the first three are named"


async def test_a_file_that_an_ordinary_user_cannot_read_is_named(launch: Launch) -> None:
    """The executor runs without the capabilities by which root reads all files."""
    ordinary = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", sys.executable, "-c", IMPATIENT)
    running = await launch("cd $TONY_CHECKPOINT_DIR; echo 1 > key; chmod 000 key; sleep 60", launcher=ordinary)
    await running.begin()
    assert "key: its permissions do not allow reading" in await notice(running, "checkpoints do not contain")


async def test_a_file_that_an_ordinary_user_cannot_read_is_no_checkpoint(launch: Launch) -> None:
    ordinary = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", sys.executable, "-c", IMPATIENT)
    running = await launch("cd $TONY_CHECKPOINT_DIR; echo 1 > key; chmod 000 key", launcher=ordinary)
    await running.begin()
    settled = await running.master.first("settled")
    assert (settled.unstored, len(settled.notices)) == (1, 1)


async def test_the_number_of_files_that_were_not_stored_is_reported(launch: Launch) -> None:
    running = await started(launch, TRAINER)
    running.master.chain = ""
    running.order("write a 1")
    running.order("write b 1")
    running.order("exit 0")
    await running.master.state(lambda state: state.last)
    running.master.take_no_more(1, "nothing shows which writes belong together")
    settled = await running.master.first("settled")
    assert (settled.problem, settled.unstored) == ("nothing shows which writes belong together", 2)
