"""Jobs on an HDFS of several NameNodes, which everything reaches through a real Router of HDFS federation."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateways.hdfs_router import ARCHIVE, RESULTS, hdfs_router
from tests.gateways.places import RouterPlace, train_kill_and_resume
from tests.gateways.zookeeper import zookeeper
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.hooks.test_secure_yarn import become
from tests.jobs.places import USER
from tony_provider.cluster.errors import JobRejected
from tony_provider.runtime.storage import read_text
from tony_provider.runtime.storage.errors import StorageOtherMount

pytestmark = pytest.mark.long

HOME, FAR_HOME = f"/user/{USER}", f"{ARCHIVE}/user/{USER}"
COPY = """
import shutil, tony_sdk
for shard in tony_sdk.inputs("data"):
    shutil.copy(shard.path, tony_sdk.output("copy"))
"""


@pytest.fixture(scope="module")
def place(start_hadoop: StartHadoop) -> Iterator[RouterPlace]:
    hadoop = start_hadoop(Settings(namenodes=2, other_namenode=True, datanodes=2, nodemanagers=1))
    with hdfs_router(hadoop) as router:
        place = RouterPlace(cluster=hadoop, router=router)
        yield place
        place.close()


@pytest.fixture(scope="module")
def secure_place(start_hadoop: StartHadoop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterPlace]:
    acts = {"core-site": {f"hadoop.proxyuser.hdfs.{what}": "*" for what in ("hosts", "users")}}
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as address:
        hadoop = start_hadoop(
            Settings(secure=True, namenodes=2, other_namenode=True, datanodes=2, nodemanagers=1, properties=acts)
        )
        with hdfs_router(hadoop, address) as router:
            place = RouterPlace(cluster=hadoop, router=router)
            yield place
            place.close()


def copying(place: RouterPlace, output: str) -> dict[str, Any]:
    """A job whose staging directory, input and output may be on three mounts."""
    worker = {"memory": "128MiB", "command": f"exec python3 -c {shlex.quote(COPY)}"}
    data = {"paths": [place.uri(f"{FAR_HOME}/in.txt")], "fetch": True}
    copy = {"path": place.uri(output), "replace": True}
    return {"inputs": {"data": data}, "outputs": {"copy": copy}, "tasks": {"worker": worker}}


def test_a_job_is_killed_and_resumes(place: RouterPlace) -> None:
    train_kill_and_resume(place)
    assert list(map(str, place.hook().diagnose().problems)) == []


def test_staging_input_and_output_on_three_mounts(place: RouterPlace) -> None:
    store = place.hook().storage()
    store.write(place.uri(f"{FAR_HOME}/in.txt"), b"clicks", overwrite=True)
    for run in range(2):
        job = place.run(copying(place, f"{RESULTS}/copy"), hook=place.hook())
        job.succeeded()
        assert read_text(store, place.uri(f"{RESULTS}/copy/worker-0/in.txt")) == "clicks", run
    assert [each.name for each in store.list(place.uri(RESULTS))] == ["copy"]


def test_an_output_that_is_a_mount_point_is_refused_before_the_job(place: RouterPlace) -> None:
    hook = place.hook()
    before = len(hook.live())
    hook.storage().write(place.uri(f"{FAR_HOME}/in.txt"), b"clicks", overwrite=True)
    with pytest.raises(
        JobRejected, match=r"outputs\.copy\.path: .*a mount point.*; name a directory below the mount point"
    ):
        place.submit(copying(place, RESULTS), hook=hook)
    assert len(hook.live()) == before


def test_a_rename_across_mounts_is_refused(place: RouterPlace) -> None:
    store = place.hook().storage()
    name = f"file-{uuid.uuid4().hex}"
    source = place.uri(f"{HOME}/{name}")
    store.write(source, b"here")
    with pytest.raises(StorageOtherMount, match=r"IOException: .*choose paths below the same mount point"):
        store.rename(source, place.uri(f"{RESULTS}/{name}"))
    assert read_text(store, source) == "here"
    store.rename(source, place.uri(f"{HOME}/{name}-renamed"))


def test_a_job_with_tokens_of_the_router(secure_place: RouterPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    become(monkeypatch, secure_place.cluster, USER)
    train_kill_and_resume(secure_place)
    assert list(map(str, secure_place.hook().diagnose().problems)) == []
