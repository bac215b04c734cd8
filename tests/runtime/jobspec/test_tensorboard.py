"""The key ``tensorboard``: what it stands for, and whom it leaves alone."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tony_provider.cluster.sources import Sources
from tony_provider.cluster.training.plan import fingerprint
from tony_provider.runtime.common.codec import dump_json, load_json, to_plain
from tony_provider.runtime.jobspec.container_content import tensorboard_task
from tony_provider.runtime.jobspec.model import JobSpec, Memory, Role, TensorBoardSpec
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.parsing.parse import parse_job


def job(**fields: Any) -> JobSpec:
    return parse_job({"framework": "standalone", "tasks": {"worker": {"command": "true"}}, **fields})


@pytest.mark.parametrize("given", [True, "true", {}])
def test_it_is_a_side_car_whose_command_is_ours(given: object) -> None:
    parsed = job(tensorboard=given)
    assert parsed.tensorboard == TensorBoardSpec()
    assert list(parsed.tasks) == ["worker", "tensorboard"]
    task = parsed.tasks["tensorboard"]
    assert (task.instances, task.memory, task.vcores, task.role) == (1, 1024, 1, Role.SIDECAR)


@pytest.mark.parametrize("given", [None, False, "false", ""])
def test_without_it_there_is_none(given: object) -> None:
    assert job(tensorboard=given) == job()
    assert list(job(tensorboard=given).tasks) == ["worker"]


def test_its_container_is_what_the_job_says() -> None:
    given = {"memory": "2GiB", "vcores": "2", "node_label": "cpu", "env": {"A": 1}}
    task = job(tensorboard=given).tasks["tensorboard"]
    assert (task.memory, task.vcores, task.node_label, task.env) == (2048, 2, "cpu", {"A": "1"})


@pytest.mark.parametrize(
    ("given", "path", "words"),
    [
        ("perhaps", "tensorboard", "must be true, false or a mapping"),
        ({"memory": "1GB"}, "tensorboard.memory", "powers of ten"),
        ({"vcores": 0}, "tensorboard.vcores", "at least 1"),
        ({"node_label": "a b"}, "tensorboard.node_label", "node label"),
        ({"env": {"TONY_X": "1"}}, "tensorboard.env.TONY_X", "are reserved"),
        ({"command": "tensorboard"}, "tensorboard.command", "it belongs under tasks.<type>"),
    ],
)
def test_what_is_wrong_is_said_where_it_was_written(given: object, path: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        job(tensorboard=given)
    (problem,) = caught.value.problems
    assert problem.path == path
    assert words in problem.message


def test_a_task_type_of_that_name_is_its_authors() -> None:
    tasks = {"worker": {"command": "true"}, "tensorboard": {"command": "tensorboard --logdir x"}}
    mine = job(tasks=tasks)
    assert mine.tasks["tensorboard"].command == "tensorboard --logdir x"
    assert mine.role("tensorboard") is Role.SIDECAR
    with pytest.raises(SpecError, match=r"the job also has tasks\.tensorboard"):
        job(tasks=tasks, tensorboard=True)


def test_it_is_read_again_as_it_was_written() -> None:
    parsed = job(tensorboard={"memory": "2GiB"})
    assert parse_job(parsed) == parsed
    assert parse_job(to_plain(parsed)) == parsed
    assert load_json(dump_json(parsed), JobSpec) == parsed


def test_overrides_reach_it_also_in_a_job_that_was_read() -> None:
    parsed = job(tensorboard=True)
    assert parse_job(parsed, overrides={"tensorboard": {"memory": "3GiB"}}).tasks["tensorboard"].memory == 3072
    assert parse_job(parsed, overrides={"tensorboard": None}) == job()


def test_looking_at_a_training_makes_no_other_of_it() -> None:
    assert fingerprint(job(tensorboard=True), Sources([], [])) == fingerprint(job(), Sources([], []))


def test_the_task_follows_the_spec() -> None:
    assert tensorboard_task(attrs.evolve(TensorBoardSpec(), memory=Memory(7))).memory == 7
