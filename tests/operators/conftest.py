from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.operators.jobs import Marker
from tests.operators.trainings import Training
from tests.shared_runtime import hdfs_extra, local_extra
from tony_provider.cluster.interface import Submission
from tony_provider.cluster.submission.submitter import SubmissionBuilder
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.application import ApplicationDescription, read_description


@pytest.fixture
def local(airflow_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TonyHook:
    """The embedded local cluster, as the connection ``tony_default``; a hook to look at it from outside."""
    extra = {**local_extra(tmp_path / "tony"), "local_memory": 1024}
    connection = {"conn_type": "tony", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
    return TonyHook()


@pytest.fixture
def yarn(airflow_db: None, hadoop: HadoopCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[TonyHook]:
    """The same of a real YARN, with a staging directory of the test's own."""
    staging_dir = f"{hadoop.fs_default}/user/alice/{uuid4().hex}"
    connection = {
        "conn_type": "tony",
        "login": "alice",
        "host": ",".join(hadoop.rm_webapp),
        "extra": {"webhdfs": ",".join(hadoop.webhdfs), "staging_dir": staging_dir, **hdfs_extra(hadoop)},
    }
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
    with TonyHook() as hook:
        yield hook
        hook.storage().remove(staging_dir, recursive=True)


@pytest.fixture
def marker(tmp_path: Path) -> Marker:
    return Marker(tmp_path / "running")


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> dict[str, ApplicationDescription]:
    found: dict[str, ApplicationDescription] = {}
    build = SubmissionBuilder.build

    def built(builder: SubmissionBuilder) -> Submission:
        submission = build(builder)
        found[submission.description.application_id] = read_description(submission.credentials.secrets)
        return submission

    monkeypatch.setattr(SubmissionBuilder, "build", built)
    return found


@pytest.fixture
def training(
    local: TonyHook, tmp_path: Path, caplog: pytest.LogCaptureFixture, described: dict[str, ApplicationDescription]
) -> Training:
    return Training(local, tmp_path, caplog, described)


@pytest.fixture(params=["local", pytest.param("yarn", marks=pytest.mark.long)])
def training_anywhere(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    described: dict[str, ApplicationDescription],
) -> Iterator[Training]:
    """The same, on each of both backends."""
    training = Training(request.getfixturevalue(request.param), tmp_path, caplog, described)
    yield training
    for application in training.hook.find(training.identity):
        training.hook.kill(application.id, "the test is over")


@pytest.fixture(autouse=True)
def _sigterm() -> Iterator[None]:
    """Airflow's task runner leaves its own handler behind."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
