"""Containers that run as the users of their jobs, as LinuxContainerExecutor has it on Kerberos clusters.

Its native program is a stand-in of the tests: tests/hadoop/container_executor.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.node_view import lacks_rights
from tests.hadoop.settings import PROXY_USER, Settings
from tests.hadoop.user_containers import system_user
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import USER, YarnPlace
from tony_provider.cluster.interface import ApplicationState
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.protocol.status import JobState

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(lacks_rights()), reason=lacks_rights()),
]


@pytest.fixture(scope="module")
def user_containers(start_hadoop: StartHadoop) -> Iterator[YarnPlace]:
    cluster = start_hadoop(Settings(secure=True, https=True, container_executor=True))
    yield YarnPlace(cluster=cluster)
    cluster.stop()


@pytest.fixture
def place(
    user_containers: YarnPlace, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[YarnPlace]:
    """As whoever the test is parametrized with, else alice."""
    cluster = user_containers.cluster
    for name, value in cluster.layout.kerberos_environment(getattr(request, "param", USER)).items():
        if name.startswith("KRB5"):
            monkeypatch.setenv(name, value)
    place = YarnPlace(cluster=cluster)
    yield place
    place.close()


WHOAMI = 'test $TONY_RANK != 0 || { id -u > $TONY_MODEL_DIR/uid; stat -c "%u %a" .. . > $TONY_MODEL_DIR/folders; }'


def test_a_job_runs_as_its_user(place: YarnPlace) -> None:
    job = place.run({"tasks": {"worker": {"instances": 2, "memory": "2200MiB", "command": WHOAMI}}})
    job.succeeded()
    uid = system_user(USER)
    assert job.read("model/uid") == f"{uid}\n"
    assert job.read("model/folders") == f"{uid} 2750\n" * 2
    assert_nothing_left(place, job)


@pytest.mark.parametrize("place", [PROXY_USER], indirect=True)
def test_a_job_runs_as_the_user_that_it_is_submitted_for(place: YarnPlace) -> None:
    hook = TonyHook(place.hook().tony_conn_id, proxy_user="bob")
    job = place.run({"tasks": {"worker": {"command": WHOAMI}}}, hook=hook)
    job.succeeded()
    assert job.read("model/uid") == f"{system_user('bob')}\n"
    assert_nothing_left(place, job)


def test_a_job_that_is_killed_leaves_nothing(place: YarnPlace) -> None:
    job = place.submit({"tasks": {"worker": {"memory": "128MiB", "command": "setsid sleep 1000"}}})
    job.until(JobState.RUNNING)
    job.hook.kill(job.id, "enough")
    assert job.end().state is ApplicationState.KILLED
    job.handle.clean_up()
    assert_nothing_left(place, job)
