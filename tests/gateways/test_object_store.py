"""Jobs with inputs and outputs on a real S3 server, whose access is in an AWS connection of Airflow."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace, Place, YarnPlace
from tests.jobs.test_secrets import assert_not_told, files_with
from tests.s3proxy import KEY, SECRET, ObjectServer
from tony_provider.cluster.errors import JobRejected, SourceMissing
from tony_provider.cluster.records.staleness import ChangeKind, ModelState
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.storage import errors, object_store, uris

SHARDS = 12
PROGRAM = """
import hashlib, json, os, pathlib
import tony_sdk

out = pathlib.Path(tony_sdk.output("predictions"))
for shard in tony_sdk.inputs("images"):
    path = out / f"{os.path.basename(shard.path)}.json"
    path.write_text(str(len(pathlib.Path(shard.path).read_bytes())))
    shard.done(path)
(out / "large").write_bytes(bytes(9 << 20))
names = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION"
env = hashlib.sha256(" ".join(os.environ[each] for each in names).encode()).hexdigest()
print(json.dumps({"part": [s.uri for s in tony_sdk.inputs("train")], "env": env}))
"""
FAILING = "touch $TONY_OUTPUT_PREDICTIONS/a; exit 1"
WAITING = "touch $TONY_OUTPUT_PREDICTIONS/a; echo waits; exec sleep 600"


@pytest.fixture
def aws(object_server: ObjectServer) -> Iterator[str]:
    """An AWS connection of Airflow."""
    yield from connection(object_server)


def connection(server: ObjectServer, **other: Any) -> Iterator[str]:
    name = f"aws_{uuid.uuid4().hex}"
    extra = {"endpoint_url": server.endpoint, "region_name": "us-east-1"}
    fields = {"conn_type": "aws", "login": KEY, "password": SECRET, "extra": extra, **other}
    os.environ[f"AIRFLOW_CONN_{name.upper()}"] = json.dumps(fields)
    yield name
    del os.environ[f"AIRFLOW_CONN_{name.upper()}"]


@pytest.fixture(params=["yarn", "local"])
def place(request: pytest.FixtureRequest, tmp_path: Path, aws: str) -> Iterator[Place]:
    found: Place
    if request.param == "yarn":
        found = YarnPlace(cluster=request.getfixturevalue("hadoop"))
    else:
        found = LocalPlace(root=tmp_path / "tony")
    found.extra |= {"aws_conn_id": aws, "runtime_archive": ""}  # the worker's, which may have the library
    yield found
    found.close()


@pytest.fixture
def bucket(object_server: ObjectServer) -> str:
    """With shards and what is none."""
    name = object_server.add_bucket()
    storage = object_server.storage(name)
    for number in range(SHARDS):
        storage.write(f"s3://{name}/in/day={number % 3}/part-{number:02}", b"x" * (number + 1))
    storage.write(f"s3://{name}/in/_SUCCESS", b"")
    return name


def spec(bucket: str, command: str, **worker: Any) -> dict[str, Any]:
    inputs = {
        "train": {"paths": [f"s3a://{bucket}/in/day=*"]},
        "images": {"paths": [f"s3://{bucket}/in"], "deal": "queue", "fetch": True},
    }
    return {
        "tasks": {"worker": {"instances": 2, "memory": "128MiB", "command": command, **worker}},
        "inputs": inputs,
        "outputs": {"predictions": f"s3://{bucket}/out/predictions"},
    }


def outputs(server: ObjectServer, bucket: str) -> dict[str, bytes]:
    return {name: data for name, data in server.files(bucket).items() if not name.startswith("in/")}


def test_shards_and_publishing_on_the_object_store(
    place: Place, object_server: ObjectServer, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    job = place.submit(spec(bucket, f"python3 -c '{PROGRAM}'"))
    status = job.succeeded()

    said = [job.said(f"worker:{index}") for index in range(2)]
    parts = sorted(uri for each in said for uri in each["part"])
    assert parts == sorted(f"s3a://{bucket}/in/day={number % 3}/part-{number:02}" for number in range(SHARDS))
    env = hashlib.sha256(f"{KEY} {SECRET} {object_server.endpoint} us-east-1".encode()).hexdigest()
    assert [each["env"] for each in said] == [env, env]
    assert [(each.name, each.shards, each.committed) for each in status.inputs] == [
        ("train", SHARDS, None),
        ("images", SHARDS, SHARDS),
    ]

    found = outputs(object_server, bucket)
    mark = json.loads(found.pop("out/predictions/_SUCCESS"))
    large = {f"out/predictions/worker-{index}/large": bytes(9 << 20) for index in range(2)}
    assert (mark["application_id"], mark["files"]) == (job.id, SHARDS + 2)
    assert {name: found.pop(name) for name in large} == large
    results = {uris.name(f"s3:///{name}"): data for name, data in found.items()}
    assert results == {f"part-{number:02}.json": str(number + 1).encode() for number in range(SHARDS)}
    assert all(name.startswith(("out/predictions/worker-0/", "out/predictions/worker-1/")) for name in found)

    assert_nothing_left(place, job)
    assert files_with(place, job, SECRET) == []
    assert_not_told(place, job, SECRET)
    assert SECRET not in caplog.text
    with pytest.raises(JobRejected, match="another training wrote it; name another path"):
        place.submit(spec(bucket, "true"))

    assert job.compared() == (ModelState.CURRENT, {})
    storage, corrected = object_server.storage(bucket), f"{bucket}/in/day=1/part-01"
    storage.write(f"s3://{bucket}/in/day=0/part-00", b"x", overwrite=True)  # the same bytes
    storage.write(f"s3://{corrected}", b"yy", overwrite=True)
    assert job.compared() == (
        ModelState.STALE,
        {f"{scheme}://{corrected}": ChangeKind.CHANGED for scheme in ("s3a", "s3")},
    )


@pytest.mark.parametrize("place", ["yarn"], indirect=True)
def test_a_job_that_fails_or_is_killed_leaves_nothing_in_the_way_of_another(
    place: Place, object_server: ObjectServer, bucket: str
) -> None:
    failed = place.run(spec(bucket, FAILING, restart="never"))
    failed.failed()
    assert outputs(object_server, bucket) == {}

    killed = place.submit(spec(bucket, WAITING))
    killed.until(JobState.RUNNING)
    killed.until_said("worker:0", "waits")
    killed.hook.kill(killed.id, "the test continues")
    killed.end()
    killed.handle.clean_up()
    assert outputs(object_server, bucket) == {}

    place.submit(spec(bucket, "touch $TONY_OUTPUT_PREDICTIONS/a")).succeeded()
    assert outputs(object_server, bucket).keys() == {
        f"out/predictions/{name}" for name in ("_SUCCESS", "worker-0/a", "worker-1/a")
    }


@pytest.mark.parametrize("place", ["local"], indirect=True)
class TestBeforeTheSubmission:
    """One clear error each."""

    def test_a_missing_bucket(self, place: Place) -> None:
        with pytest.raises(errors.StorageInvalidPath, match=r"s3a://nothing/in: the bucket does not exist$"):
            place.submit(spec("nothing", "true"))

    def test_a_missing_directory(self, place: Place, object_server: ObjectServer) -> None:
        with pytest.raises(SourceMissing, match=r"s3://bucket-\w+/in does not exist; correct the path"):
            place.submit(spec(object_server.add_bucket(), "true"))

    @pytest.mark.parametrize(
        ("other", "words"),
        [
            ({"password": "wrong"}, r"SignatureDoesNotMatch.*check the access key in the AWS connection"),
            ({"login": "AKIAUNKNOWN"}, r"InvalidAccessKeyId.*check the access key in the AWS connection"),
        ],
    )
    def test_a_wrong_key(
        self, place: Place, object_server: ObjectServer, bucket: str, other: dict[str, str], words: str
    ) -> None:
        for name in connection(object_server, **other):
            place.extra["aws_conn_id"] = name
            with pytest.raises(errors.StorageAuthError, match=words):
                place.submit(spec(bucket, "true"))

    def test_an_unreachable_server(self, place: Place, object_server: ObjectServer, bucket: str) -> None:
        for name in connection(object_server, extra={"endpoint_url": "http://127.0.0.1:9"}):
            place.extra["aws_conn_id"] = name
            with pytest.raises(errors.StorageUnreachable, match=r"a request to http://127\.0\.0\.1:9 failed"):
                place.submit(spec(bucket, "true"))

    def test_a_worker_without_the_library(self, place: Place, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(object_store, "PACKAGE", "no_such_package")
        with pytest.raises(JobRejected, match="install tony-provider with the extra object-stores"):
            place.submit(spec(bucket, "true"))

    def test_an_archive_without_the_library(self, place: Place, bucket: str) -> None:
        del place.extra["runtime_archive"]
        with pytest.raises(JobRejected, match=r"build it again with `airflow tony runtime build --object-stores`"):
            place.submit(spec(bucket, "true"))


def test_nodes_without_a_role_fail_the_job_with_the_remedy(tmp_path: Path, bucket: str) -> None:
    """The submission does not check paths that only nodes may reach."""
    place = LocalPlace(root=tmp_path / "tony", extra={"runtime_archive": ""})
    job = place.submit({**spec(bucket, "true"), "env": {"AWS_REGION": "us-east-1"}})
    assert "no access key was given, and this machine has no role of its own; set `aws_conn_id`" in job.failed()
    place.close()


def test_a_job_brings_its_own_key(tmp_path: Path, object_server: ObjectServer, bucket: str) -> None:
    """Without a connection: the key is a secret of the job, the endpoint in its environment."""
    place = LocalPlace(root=tmp_path / "tony", extra={"runtime_archive": ""})
    variables = object_server.variables
    secrets = {name: variables.pop(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    command = "cp $TONY_INPUT_TRAIN $TONY_OUTPUT_PREDICTIONS/part"
    job = {**spec(bucket, command), "secrets": list(secrets), "env": variables}
    del job["inputs"]["images"]
    place.submit(job, secrets=secrets).succeeded()
    found = outputs(object_server, bucket)
    assert found.keys() == {f"out/predictions/{name}" for name in ("_SUCCESS", "worker-0/part", "worker-1/part")}
    place.close()
