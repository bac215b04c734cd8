"""Which containers get which of a job's files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tony_provider.cluster.environments.inspection import NodePythons
from tony_provider.cluster.records.history import EnvironmentContent
from tony_provider.cluster.sources import Sources, StoredSource
from tony_provider.cluster.submission.preparation import PreparedSubmission
from tony_provider.cluster.submission.submitter import resources_of
from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.jobspec.container_content import EnvironmentKind
from tony_provider.runtime.parsing.parse import parse_job

RUNTIME = LocalizedResource("tony-runtime.zip", "hdfs:///tony.zip", 1, 1)
PACKED = LocalizedResource("python_env", "hdfs:///env.tar.gz", 1, 1)
OWN = LocalizedResource("python_env", "hdfs:///own.tar.gz", 1, 1)
IMAGE = {"image": "tf:2", "network": "host"}


def prepared(job: dict[str, Any], python: list[str], *, built: bool = False) -> PreparedSubmission:
    tasks = {"worker": {"command": "true"}, "tool": {"command": "true", "python_env": "hdfs:///own.tar.gz"}}
    content = EnvironmentContent(python_env=PACKED.uri, kind=EnvironmentKind.ARCHIVE, built=built)
    found = SimpleNamespace(
        runtime=RUNTIME,
        nodes=NodePythons(frozenset({(3, 9), (3, 12)})),
        sources=Sources(
            [],
            [StoredSource(PACKED, "python_env", "worker"), StoredSource(OWN, "tasks.tool.python_env", "tool")],
        ),
        request=SimpleNamespace(
            job=parse_job({"framework": "standalone", "python_env": PACKED.uri, "tasks": tasks, **job})
        ),
        environments={"python_env": content},
        opened=SimpleNamespace(settings=SimpleNamespace(python=python)),
    )
    return cast(PreparedSubmission, found)


def test_each_task_type_gets_its_own_environment() -> None:
    found = resources_of(prepared({}, []), [])
    assert (found.of_tasks, found.by_type) == ([], {"worker": [PACKED], "tool": [OWN]})
    assert found.runtime_pythons == ["3.9", "3.12"]


@pytest.mark.parametrize(
    ("python", "job", "gets_it"),
    [
        ([], {}, True),
        (["/usr/bin/python3"], {}, False),
        (["/usr/bin/python3"], {"docker": IMAGE}, True),  # that one is the nodes', and the image has perhaps none
        (["/usr/bin/python3"], {"am": {"docker": IMAGE}}, True),
        (["/usr/bin/python3"], {"docker": IMAGE, "am": {"docker": False}}, False),
    ],
)
def test_the_master_gets_the_jobs_environment_where_it_may_need_its_python(
    python: list[str], job: dict[str, Any], gets_it: bool
) -> None:
    assert resources_of(prepared(job, python), []).of_master == ([PACKED] if gets_it else [])


def test_the_master_gets_no_environment_without_an_interpreter() -> None:
    assert resources_of(prepared({"docker": IMAGE}, [], built=True), []).of_master == []
