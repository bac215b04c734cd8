"""What a task's log says of files that its job has written and that are not stored."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operators.jobs import job
from tests.operators.trainings import Training

# Saves, and goes on until its log says what is wrong with that.
GOES_ON = "sleep 45"


def two_workers(command: str, **checkpoint: Any) -> dict[str, Any]:
    spec = job(command, checkpoint=checkpoint)
    spec["tasks"]["worker"]["instances"] = 2
    return spec


def warnings(training: Training, spec: dict[str, Any]) -> list[str]:
    """The warnings of a job's result. Each must be in the task's log once."""
    done = training.again(spec)
    found: list[str] = done.results["train"]["warnings"]
    assert [training.log.count(f"Warning: {each}") for each in found] == [1] * len(found)
    return found


def test_saves_in_the_working_directory(training: Training) -> None:
    [said] = warnings(training, job("mkdir checkpoint-5; echo {} > checkpoint-5/trainer_state.json"))
    assert said.startswith("worker:0: the program saves checkpoints in its working directory (checkpoint-5/")
    assert "output_dir=" in said
    assert training.said("Nothing was left in TONY_MODEL_DIR or TONY_CHECKPOINT_DIR: ")


@pytest.mark.long
def test_saves_in_the_working_directory_while_it_trains(training: Training) -> None:
    training.again(job(f"mkdir checkpoint-5; echo {{}} > checkpoint-5/trainer_state.json; {GOES_ON}; echo the end"))
    assert training.log.index("its working directory (checkpoint-5") < training.log.index("Job is SUCCEEDED")


@pytest.mark.parametrize("mirror", ["off", "leader"])
def test_files_of_tasks_that_take_no_part(training: Training, mirror: str) -> None:
    writes = '[ "$TONY_TASK_INDEX" = 0 ] || for i in a b c; do echo 1 > $TONY_CHECKPOINT_DIR/$i; done'
    [said] = warnings(training, two_workers(writes, mirror=mirror))
    assert said.startswith("worker:1: 3 files that it wrote are not stored (TONY_CHECKPOINT_DIR: a, b, c), because ")
    assert f"checkpoint.mirror is {mirror}" in said
    assert training.said(r"WARNING .* Nothing of this job is on the store, although .*: worker:1 \(3 files\)\.")
    assert not training.said("Nothing was left in")


def test_tasks_with_the_same_notice_share_a_line(training: Training) -> None:
    [said] = warnings(training, two_workers("echo 1 > $TONY_CHECKPOINT_DIR/a", mirror="off"))
    assert said.startswith("worker:0, worker:1: 1 file that it wrote is not stored")


def test_the_model_of_another_rank(training: Training) -> None:
    assert warnings(training, two_workers('[ "$TONY_TASK_INDEX" = 0 ] || echo 1 > $TONY_MODEL_DIR/model')) == []
    assert training.said(r"although .*: worker:1 \(1 file\)\. .* Only the model of rank 0 is stored")


def test_ranks_that_overwrite_the_same_file(training: Training) -> None:
    """Nothing shows which writes belong together."""
    saves = "for i in 1 2 3; do echo $i > new; mv new model.bin; sleep 6; done"
    gang = {**two_workers(f"cd $TONY_CHECKPOINT_DIR; {saves}"), "framework": "pytorch"}
    said = warnings(training, gang)
    assert any("set checkpoint.mirror to leader" in each for each in said)
    assert any(each.startswith("the newest checkpoint of worker:1 (1 file) is not on the store") for each in said)
    assert not training.said("Nothing was left in")


def test_what_a_checkpoint_leaves_out(training: Training) -> None:
    [said] = warnings(training, job("cd $TONY_CHECKPOINT_DIR; echo 1 > model.bin; ln -s /etc/passwd data; mkfifo pipe"))
    assert said == (
        "worker:0: checkpoints do not contain everything in TONY_CHECKPOINT_DIR: data: it is a link that leads out of "
        "the directory, to /etc/passwd; pipe: it is neither a file, a link nor a directory"
    )


def test_a_store_that_refuses(training: Training) -> None:
    """Mocked by a file in the place of a directory, because the local store has no quota."""
    blocks = "chain=$(dirname ${TONY_CHECKPOINT_URI#file://}); mkdir -p $chain; touch $chain/objects"
    spec = job(f"{blocks}; echo 1 > $TONY_CHECKPOINT_DIR/model.bin; sleep 15", timeouts={"checkpoint": "5s"})
    said = warnings(training, spec)
    assert any(each.startswith("the newest checkpoint of worker:0 (1 file) is not on the store: ") for each in said)
    assert training.said("Warning: worker:0: its newest checkpoint has not been stored since ")
    assert not training.said("Nothing was left in")


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "reason", "remedy"),
    [
        ("exec 3> state.bin; echo 1 >&3; sleep 150", "state.bin is open for writing", "close it after each save"),
        (
            "for i in $(seq 500); do echo $i > a-$((i%7)).bin; echo $i > b-$((i%5)).bin; sleep 0.3; done",
            "was changed less than [0-9.]+ s ago",
            "tony_sdk.commit_checkpoint",
        ),
    ],
)
def test_what_prevents_a_snapshot(training: Training, command: str, reason: str, remedy: str) -> None:
    training.again(job(f"cd $TONY_CHECKPOINT_DIR; {command}"))
    assert training.said(f"Warning: worker:0: its newest checkpoint has not been stored since .*{reason}.*{remedy}")
