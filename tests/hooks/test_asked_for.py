"""What may be asked for, by a connection: how it is read, and that everybody who goes through the hook obeys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.hooks.conftest import AddConnection
from tests.hooks.jobs import identity, job
from tony_provider.cluster.errors import ConnectionProblem, JobNotAllowed
from tony_provider.cluster.findings import JobProblem
from tony_provider.cluster.settings import Policy
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.connection import read_connection
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.storage.base import walk

LIMITS = {
    "proxy_users": "bob, ml-*",
    "queues": ["ml"],
    "images": "none",
    "file_roots": "/opt/dags",
    "allowed_overrides": [],
    "max_tasks": "8",
    "max_memory": "64GiB",
    "max_vcores": 32,
    "max_gpus": 0,
    "max_container_memory": 16384,
    "max_container_vcores": 8,
    "max_container_gpus": 2,
    "max_lifetime": "2d",
    "max_priority": 0,
}


@pytest.fixture
def connect(add_connection: AddConnection, tmp_path: Path) -> Any:
    def connect(**extra: Any) -> TonyHook:
        add_connection("tony_default", extra={"backend": "local", "staging_dir": str(tmp_path / "tony"), **extra})
        return TonyHook()

    return connect


def test_every_limit_is_read(connect: Any) -> None:
    assert connect(**LIMITS).settings.policy == Policy(
        "tony_default", ["bob", "ml-*"], ["ml"], [], [Path("/opt/dags")], [],
        8, 65536, 32, 0, 16384, 8, 2, 172800.0, 0,  # type: ignore[arg-type]
    )  # fmt: skip
    assert connect().settings.policy == Policy("tony_default")
    assert connect(queues="", max_tasks=None, images=None).settings.policy == Policy("tony_default")


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"file_roots": "dags"}, "`file_roots` names 'dags', which is not an absolute path"),
        ({"queues": " , "}, "`queues` is ' , ' and names nothing; write none to allow nothing"),
        ({"queues": 3}, "`queues` is 3 and should be comma-separated text, or a list"),
        ({"max_tasks": 0}, "`max_tasks` is 0 and should be 1 or more"),
        ({"max_memory": "lots"}, "`max_memory` is 'lots'"),
        ({"max_lifetime": "0s"}, "`max_lifetime` is '0s' and should be more than zero"),
        ({"max_lifetime": "long"}, "`max_lifetime` is 'long'"),
        ({"presets": "small"}, "`presets` cannot be used: presets: must be a mapping"),
        ({"presets": [1]}, "`presets` cannot be used: presets: must be YAML, JSON or a mapping"),
        ({"presets": {"a": 3}}, "a: must be a mapping"),
        ({"presets": {"a": {"preset": "b"}}}, "a.preset: a preset cannot use another preset"),
        (
            {"presets": {"a": {"tasks": {"worker": {"cpus": 3}}}}},
            "a.tasks.worker.cpus: unknown key; did you mean",
        ),
        ({"presets": {"a": {"priority": "high"}, "b": {"quue": "ml"}}}, "b.quue: unknown key; did you mean queue?"),
    ],
)
def test_what_no_connection_says(connect: Any, extra: dict[str, Any], expected: str) -> None:
    hook = connect(**extra)
    with pytest.raises(ConnectionProblem) as raised:
        _ = hook.settings
    assert expected in str(raised.value)
    good, told = hook.test_connection()
    assert not good
    assert expected in told


def test_parts_of_jobs_are_fine_as_presets(connect: Any) -> None:
    presets = {"gpu": {"queue": "gpu", "docker": {"mounts": []}, "tasks": {"worker": {"gpus": 1}}}, "empty": {}}
    assert connect(presets=presets).settings.presets.by_name == presets
    assert connect(presets="{gpu: {queue: gpu}}").settings.presets.by_name == {"gpu": {"queue": "gpu"}}


def test_nobody_acts_for_a_user_whom_the_connection_does_not_allow(connect: Any) -> None:
    connect(proxy_users="bob")
    assert read_connection("tony_default", "bob").proxy_user == "bob"
    assert read_connection("tony_default").proxy_user is None
    with pytest.raises(ConnectionProblem, match="proxy_user: root is not allowed by the connection 'tony_default'"):
        read_connection("tony_default", "root")


def test_nothing_is_staged_of_what_is_not_allowed(connect: Any, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("true")
    with connect(file_roots=str(tmp_path / "dags"), max_priority=1, allowed_overrides="queue") as hook:
        over: dict[str, Any] = {"priority": 2}
        asked = SubmissionRequest(
            job("sh train.sh", files=["train.sh"], **over), identity(hook), search_path=[tmp_path], overrides=over
        )
        for ask in (hook.submit, hook.preview):
            with pytest.raises(JobNotAllowed) as raised:
                ask(asked)
            assert [problem.split(":")[0] for problem in raised.value.problems] == [
                "priority",
                "priority",
                "files[0]",
            ]
        with pytest.raises(JobNotAllowed, match="max_priority: 1"):
            hook.check(asked.job)
        told = [each for each in hook.job_findings(asked.job, over, [tmp_path]) if isinstance(each, JobProblem)]
        assert [each.detail.split(":")[0] for each in told] == ["priority", "priority", "files[0]"]
        storage = hook.storage()
        assert not storage.exists(hook.layout.root) or not list(walk(storage, hook.layout.root))
        fine = attrs.evolve(asked, job=job("true", priority=1), overrides=None)
        assert hook.preview(attrs.evolve(fine, advice={"tasks": {"worker": {"memory": "256MiB"}}}))


def test_what_an_operator_has_made_lies_where_it_will(connect: Any, tmp_path: Path) -> None:
    made = tmp_path / "tony_function.py"
    made.write_text("def train(): ...")
    with connect(file_roots="/opt/dags") as hook:
        asked = SubmissionRequest(job("true", files=[str(made)]), identity(hook))
        with pytest.raises(JobNotAllowed):
            hook.preview(asked)
        assert hook.preview(attrs.evolve(asked, made=[made])).staged
