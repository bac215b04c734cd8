"""Who may read an application's records on a real HDFS, and that nobody else may who could not before."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit

import attrs
import pytest

from tests.hadoop.client import HttpError
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tony_provider.cluster.submission.submitter import share_records
from tony_provider.cluster.training.identity import Identity, Layout, identity_of
from tony_provider.runtime.application import shared_records
from tony_provider.runtime.jobspec.model import AccessNames, AclSpec, JobSpec
from tony_provider.runtime.storage import LocalStorage, Storage, WebHdfsConfig, open_storage

APPLICATION = "application_1_0001"
OWNER = "alice"


def job(*users: str, groups: tuple[str, ...] = ()) -> JobSpec:
    return JobSpec("standalone", {}, acls=AclSpec(view=AccessNames(list(users), list(groups))))


@attrs.frozen
class Place:
    """A staging directory of alice's on a real HDFS."""

    cluster: HadoopCluster
    layout: Layout
    identity: Identity

    @property
    def directory(self) -> str:
        return self.layout.application_dir(self.identity, APPLICATION)

    def storage(self, job: JobSpec) -> Storage:
        """As the job's containers open it."""
        config = WebHdfsConfig(list(self.cluster.webhdfs), user=OWNER)
        return open_storage(self.directory, webhdfs=config, shared=shared_records(job, self.directory))

    def run(self, job: JobSpec) -> None:
        """All that is shared of a job, and some that is not, is written."""
        with self.storage(job) as storage:
            storage.write(f"{self.directory}/history/specification.json", b"{}", overwrite=True)
            storage.write(f"{self.directory}/master.json", b"{}", overwrite=True)
            share_records(storage, self.layout, self.identity, APPLICATION, job)
            for name in (
                "status.json",
                "logs/worker-0.log",
                "history/events-1",
                "model/history/x",
                "return_value.json",
            ):
                storage.write(f"{self.directory}/{name}", b"{}", overwrite=True)
            storage.write(f"{self.directory}/status.json", b"{1}", overwrite=True)  # as it is written again and again

    def may(self, user: str, path: str, op: str = "OPEN") -> bool:
        client = self.cluster.client(user)
        url = f"{self.cluster.webhdfs[0]}/webhdfs/v1{urlsplit(self.directory).path}/{path}"
        try:
            client.request("GET", url, query={"op": op})
        except HttpError as error:
            assert "AccessControlException" in str(error)  # noqa: PT017
            return False
        return True

    def change(self, path: str, **query: str) -> None:
        url = f"{self.cluster.webhdfs[0]}/webhdfs/v1{path}"
        self.cluster.client(OWNER).request("PUT", url, query=query)

    def entries(self, path: str) -> list[str]:
        url = f"{self.cluster.webhdfs[0]}/webhdfs/v1{path}"
        found = json.loads(self.cluster.client(OWNER).request("GET", url, query={"op": "GETACLSTATUS"}))
        return list(found["AclStatus"]["entries"])


@pytest.fixture
def place(hadoop: HadoopCluster) -> Iterator[Place]:
    yield from _place(hadoop)


def _place(hadoop: HadoopCluster) -> Iterator[Place]:
    layout = Layout(f"{hadoop.fs_default}/tmp/sharing-{uuid.uuid4().hex}")
    identity = identity_of(namespace="", dag_id="d", run_id="r", task_id="t", map_index=-1, checkpoint_key=None)
    place = Place(hadoop, layout, identity)
    with place.storage(JobSpec("standalone", {})) as storage:
        yield place
        storage.remove(layout.root, recursive=True)


SHARED = ("status.json", "logs/worker-0.log", "history/events-1", "history/specification.json")
KEPT = ("master.json", "model/history/x", "return_value.json")


def test_viewers_read_records_and_nothing_else(place: Place) -> None:
    place.run(job("bob"))
    assert [name for name in SHARED if not place.may("bob", name)] == []
    assert [name for name in KEPT if place.may("bob", name)] == []
    assert place.may("bob", "history", "LISTSTATUS")
    assert place.may("bob", "logs", "LISTSTATUS")
    assert not any(place.may("bob", path, "LISTSTATUS") for path in ("", "model"))
    assert not any(place.may("airflow", name) for name in (*SHARED, *KEPT))


def test_groups_and_everybody(place: Place) -> None:
    place.run(job(groups=("users",)))  # which everybody on this cluster is in
    assert all(place.may("airflow", name) for name in SHARED)
    assert not any(place.may("airflow", name) for name in KEPT)
    place.run(job("*"))
    assert all(place.may("bob", name) for name in SHARED)
    assert not any(place.may("bob", name) for name in KEPT)


def test_a_job_without_viewers_leaves_everything_as_it_was(place: Place) -> None:
    place.run(job())
    assert not any(place.may("bob", name) for name in (*SHARED, *KEPT))
    assert place.entries(urlsplit(place.layout.root).path) == []


def test_nobody_comes_in_whom_a_mask_has_kept_out(place: Place) -> None:
    """What an administrator hands down to new files, and 0700 and 0600 keep out, stays out."""
    root = urlsplit(place.layout.root).path
    with place.storage(job()) as storage:
        storage.make_directories(place.layout.root)
    place.change(root, op="MODIFYACLENTRIES", aclspec="default:user:airflow:rwx,user:airflow:rwx,mask::---")
    place.run(job("bob"))
    assert all(place.may("bob", name) for name in SHARED)
    assert not any(place.may("airflow", name) for name in (*SHARED, *KEPT))


def test_homes_that_keep_viewers_out_are_named(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    layout = Layout(f"{place.cluster.fs_default}/user/{OWNER}/sharing-{uuid.uuid4().hex}")
    closed = attrs.evolve(place, layout=layout)
    closed.run(job("bob", groups=("ml",)))
    with closed.storage(job()) as storage:
        storage.remove(layout.root, recursive=True)
    assert f"hdfs dfs -setfacl -m user:bob:--x,group:ml:--x /user/{OWNER}" in caplog.text


def test_a_store_without_access_lists_is_told_of(caplog: pytest.LogCaptureFixture, tmp_path: object) -> None:
    layout = Layout(f"file://{tmp_path}/tony")
    identity = identity_of(namespace="", dag_id="d", run_id="r", task_id="t", map_index=-1, checkpoint_key=None)
    storage = LocalStorage()
    storage.make_directories(layout.application_dir(identity, APPLICATION))
    share_records(storage, layout, identity, APPLICATION, job("bob"))
    assert "only the job's owner can read its logs, status and history" in caplog.text
    assert "access lists are not supported" in caplog.text


@pytest.mark.long
def test_hdfs_whose_access_lists_are_off_is_told_of_and_nothing_is_opened(
    start_hadoop: StartHadoop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    off = {"hdfs-site": {"dfs.namenode.acls.enabled": "false"}}
    cluster = start_hadoop(Settings(nodemanagers=0, properties=off))
    try:
        for place in _place(cluster):
            place.run(job("bob"))
            assert not any(place.may("bob", name) for name in (*SHARED, *KEPT))
            assert "dfs.namenode.acls.enabled" in caplog.text
            assert caplog.text.count("only its owner can read") == 1
    finally:
        cluster.stop()
