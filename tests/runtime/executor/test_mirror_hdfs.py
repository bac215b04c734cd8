"""The same on a real HDFS, as an ordinary user: out of one container and into another."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator

import attrs
import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.runtime.executor import trainer
from tests.runtime.executor.conftest import Launch
from tests.runtime.executor.containers import job
from tests.runtime.executor.stored import commit_uploaded
from tests.runtime.executor.test_mirror import COMMAND
from tests.runtime.executor.test_preparation import resume
from tony_provider.runtime.jobspec.model import CheckpointSpec, Memory
from tony_provider.runtime.storage import Storage, WebHdfsConfig, open_storage, uris
from tony_provider.runtime.storage.base import read_text


@attrs.frozen
class Store:
    uri: str
    config: WebHdfsConfig
    storage: Storage

    @property
    def container(self) -> dict[str, object]:
        return {"hdfs": self.uri, "webhdfs": self.config}


@pytest.fixture
def store(hadoop: HadoopCluster) -> Iterator[Store]:
    config = WebHdfsConfig(list(hadoop.webhdfs), user="alice")
    uri = f"hdfs:///tmp/{uuid.uuid4().hex}"
    with open_storage(uri, webhdfs=config) as storage:
        yield Store(uri, config, storage)
        storage.remove(uri, recursive=True)


async def test_a_checkpoint_moves_to_another_container(launch: Launch, store: Store) -> None:
    first = await launch(COMMAND, **store.container)
    await first.begin()
    first.order("save 120 3000000")
    uploaded = await first.master.uploaded(120)
    uri = commit_uploaded(uploaded, store.storage)
    first.master.answer(uploaded)
    assert uri.startswith(f"{store.uri}/chain/checkpoints/save-000001-")
    await first.end()

    second = await launch(COMMAND, below=first.container.root / "another", attempt=2, **store.container)
    await second.begin(generation=2, **resume(uri, 120))
    assert (await second.master.first("started")).generation == 2
    assert ": copied 6000136 bytes from the storage, reused 0" in second.executor.stderr
    restored = second.container.directory / "tony-work" / "checkpoints" / "weights-120" / "b"
    assert restored.read_bytes() == trainer.content(120, "b", 3_000_000)
    second.order("exit 0")
    assert (await second.master.first("settled")).problem == ""
    await second.end()


async def test_a_copy_that_is_given_up_leaves_nothing(launch: Launch, store: Store) -> None:
    spec = job(COMMAND, checkpoint=CheckpointSpec(bandwidth=Memory(1)))
    running = await launch(spec, **store.container)
    await running.begin()
    running.order("save 5 20000000")
    await running.master.heartbeat_with(lambda beat: "uploading checkpoint 1" in beat.activity)
    running.master.stop(1, grace=1, checkpoint_seconds=0)
    settled = await running.master.first("settled")
    assert settled.problem == "no time was left for uploading checkpoint 1"
    objects = f"{store.uri}/chain/objects"
    await running.until(lambda: store.storage.list(objects) == [], "what was begun is removed")
    await running.end()


async def test_colons_in_the_names_of_a_model_are_escaped(launch: Launch, store: Store) -> None:
    make = "mkdir epoch:3; echo 1 > epoch:3/loss:0.1; echo 2 > twice:x; echo 3 > twice%3Ax"
    running = await launch(f'cd "$TONY_MODEL_DIR"; {make}', **store.container)
    await running.begin()
    exited = await running.master.first("exited")
    assert exited.not_kept == ""
    kept = {"epoch%3A3/loss%3A0.1": "1\n", "twice%3Ax": "3\n"}
    assert {name: read_text(store.storage, uris.join(exited.model_dir, name)) for name in kept} == kept
    notices = list((await running.master.first("settled")).notices)
    assert len(notices) == 2
    assert any("twice:x is not stored: HDFS permits no colons in names, and twice%3Ax" in notice for notice in notices)
    await running.end()


@pytest.mark.long
async def test_an_upload_that_hangs_is_reported_before_it_fails(launch: Launch, start_hadoop: StartHadoop) -> None:
    """The only DataNode is stopped, so the upload hangs for a minute. The heartbeats warn before that."""
    hadoop = start_hadoop(Settings(nodemanagers=0))
    config = WebHdfsConfig(list(hadoop.webhdfs), user="alice")
    running = await launch(COMMAND, hdfs=f"hdfs:///tmp/{uuid.uuid4().hex}", webhdfs=config)
    await running.begin()
    await running.master.first("started")
    hadoop.kill("datanode-1", signal.SIGSTOP)
    running.order("save 70 3000000")
    beat = await running.master.heartbeat_with(lambda beat: beat.trouble)
    assert beat.trouble.startswith("its newest checkpoint has not been stored since ")
    assert "the storage has accepted no bytes of checkpoint 1 for " in beat.trouble
    hadoop.kill("datanode-1", signal.SIGCONT)
    running.master.grants = True
    await running.master.uploaded(70)
    await running.until_no_trouble()
    await running.end()
