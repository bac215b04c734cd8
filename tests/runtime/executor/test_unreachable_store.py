"""Starts whose checkpoint is on a store that is out of reach for a while."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import attrs

from tests.files import files_below
from tests.runtime.executor import stored
from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.test_mirror import COMMAND, kinds
from tests.runtime.executor.test_preparation import checkpoints, resume
from tests.runtime.storage.servers import STANDBY, Reply, Request, remote_exception, scripted
from tony_provider.runtime.storage import (
    WebHdfsConfig,
)


@attrs.define
class Hdfs:
    """This machine's files as a NameNode and a DataNode would give them out, once there is an active NameNode."""

    active: bool = False
    address: str = ""
    asked: int = 0

    def answer(self, request: Request) -> Reply:
        self.asked += 1
        if not self.active:
            return STANDBY
        path = Path(unquote(urlsplit(request.path).path.removeprefix("/webhdfs/v1")))
        if not path.is_file():
            return remote_exception("FileNotFoundException", f"File does not exist: {path}")
        if request.op == "OPEN":
            return Reply(307, location=f"{self.address}/webhdfs/v1{path}?op=READ")
        if request.op == "READ":
            return Reply(200, path.read_bytes())
        status = {
            "length": path.stat().st_size,
            "modificationTime": 0,
            "type": "FILE",
            "owner": "x",
            "permission": "600",
        }
        return Reply(200, json.dumps({"FileStatus": status}).encode())


async def begun(launch: Launch, hdfs: Hdfs, root: Path) -> Running:
    """With a checkpoint of step 7, and a store that nobody has reached yet."""
    uri = stored.commit(f"file://{root}/store/chain", 7).replace("file:", "hdfs:")
    config = WebHdfsConfig([hdfs.address], "somebody", timeout=0.2)
    running = await launch(COMMAND, hdfs=f"hdfs://{root}/store", webhdfs=config, heartbeat_seconds=0.2)
    await running.begin(**resume(uri, 7))
    await running.until(lambda: "waiting up to 300 s for the store" in running.executor.stderr, "it waits")
    return running


async def test_a_store_out_of_reach_is_waited_for(launch: Launch, tmp_path: Path) -> None:
    hdfs = Hdfs()
    with scripted(hdfs.answer) as hdfs.address:
        running = await begun(launch, hdfs, tmp_path)
        asked, beats = hdfs.asked, len(await running.master.all_of("heartbeat"))
        await running.until(lambda: hdfs.asked > asked, "it is asked again")
        await running.master.all_of("heartbeat", beats + 2)
        assert kinds(running) == []
        hdfs.active = True
        await running.master.first("started")
        assert kinds(running) == ["started"]
        assert files_below(checkpoints(running)) == ["weights-7/a", "weights-7/b"]
        assert running.executor.stderr.count("for the store") == 1


async def test_a_start_that_waits_for_the_store_can_be_stopped(launch: Launch, tmp_path: Path) -> None:
    hdfs = Hdfs()
    with scripted(hdfs.answer) as hdfs.address:
        running = await begun(launch, hdfs, tmp_path)
        running.master.stop(1, grace=0)
        assert (await running.master.first("exited")).stopped
        await running.begin(generation=2)  # from the beginning, for which the store is not needed
        assert (await running.master.first("started")).generation == 2
