"""The client against real daemons: masters that YARN starts on simple, wrapped, paired and secure clusters."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.config import RATE
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.runtime.hadoop.submission import submit
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.hadoop.errors import (
    ApplicationAttemptNotFound,
    InvalidApplicationMasterRequest,
    InvalidToken,
    RpcAuthenticationError,
    RpcConnectionError,
    RpcProtocolError,
)
from tony_provider.runtime.hadoop.proto.yarn_service_pb2 import AllocateRequestProto, GetContainerStatusesRequestProto
from tony_provider.runtime.hadoop.rpc import RpcClient
from tony_provider.runtime.hadoop.tokens import Token
from tony_provider.runtime.hadoop.yarn_records import (
    ALLOCATE,
    APPLICATION_MASTER_PROTOCOL,
    CONTAINER_MANAGEMENT_PROTOCOL,
    CONTAINER_STATUSES,
    ContainerId,
)


@pytest.fixture(scope="module")
def pair(start_hadoop: StartHadoop) -> Iterator[HadoopCluster]:
    """Two ResourceManagers that roll tokens soon, and every quality of protection on offer; stopped with this file."""
    properties = {
        "core-site": {"hadoop.rpc.protection": "authentication,integrity,privacy"},
        "yarn-site": {
            # The ResourceManager accepts no shorter interval than three times its expiry of masters.
            "yarn.am.liveness-monitor.expiry-interval-ms": "8000",
            "yarn.resourcemanager.am-rm-tokens.master-key-rolling-interval-secs": "25",
        },
    }
    cluster = start_hadoop(Settings(resourcemanagers=2, nodemanagers=1, properties=properties))
    yield cluster
    cluster.stop()


async def test_a_container_runs_from_asking_to_its_end(hadoop: HadoopCluster, tmp_path: Path) -> None:
    submitted = await submit(hadoop, "echo", tmp_path, files=(_upload(hadoop, b"from HDFS"),))
    seen = await submitted.seen()
    app = await submitted.state()
    assert (app["user"], app["applicationType"], app["diagnostics"]) == ("alice", "TONY", "said what it had to say")
    assert seen["failed"] == []
    assert seen["exit status"] == 0
    assert seen["allocation_request_id"] == 7
    assert seen["others"] == {"yarn.io/gpu": 1, RATE: 0}
    assert seen["maximum others"]["yarn.io/gpu"] >= 1
    (folder,) = [folder for folder in hadoop.container_logs(app["id"]) if folder.name == seen["container"]]
    said = (folder / "stdout").read_text()
    assert "secrets {'task': 'of this task', 'job': 'of this job'}" in said
    assert "YARN_AM_RM_TOKEN" not in said
    assert "files {'input-0': 'from HDFS'}" in said


def _upload(hadoop: HadoopCluster, content: bytes) -> str:
    """A file of alice's, as ``submit`` takes it. A name with a blank: URIs are not paths."""
    client = hadoop.client("alice")
    url = f"{hadoop.webhdfs[0]}/webhdfs/v1/user/alice/an%20input"
    client.request("PUT", url, content, query={"op": "CREATE", "overwrite": "true"})
    status = client.get_json(url, op="GETFILESTATUS")["FileStatus"]
    return f"{hadoop.fs_default}/user/alice/an%20input,{status['length']},{status['modificationTime']}"


async def test_what_the_daemons_refuse_has_its_type(hadoop: HadoopCluster, tmp_path: Path) -> None:
    seen = await (await submit(hadoop, "mistakes", tmp_path)).seen()
    types = {name: value[0] for name, value in seen.items() if isinstance(value, list) and isinstance(value[0], str)}
    assert types == {
        "allocate before register": "ApplicationMasterNotRegistered",
        "register twice": "InvalidApplicationMasterRequest",
        "more than the maximum": "InvalidResourceRequest",
        "an unknown label": "InvalidResourceRequest",
        "a wrong password": "SaslRefused",
        "an identifier that is none": "RpcConnectionError",
        "a node's wrong token": "SaslRefused",
    }
    assert "maximum allowed allocation" in seen["more than the maximum"][1]
    assert "\n\tat " not in seen["more than the maximum"][1]
    # NodeManagers say these with a plain YarnException.
    assert "relaunch the same container" in seen["second start"][0][1]
    assert "not handled by this NodeManager" in seen["unknown container"][0][1]
    assert seen["state"] == "C_RUNNING"
    assert seen["exit status"] == -105  # killed by the application master

    with pytest.raises(InvalidToken, match="appattempt_"):
        await _use_until_refused(hadoop, Token.from_url_string(seen["token"]))


async def _use_until_refused(hadoop: HadoopCluster, token: Token) -> None:
    """An attempt's token ends a moment after the attempt."""
    scheduler = [Address.parse(text) for text in hadoop.state.scheduler]
    async with asyncio.timeout(60):
        while True:
            client = RpcClient(scheduler, APPLICATION_MASTER_PROTOCOL, token)
            with contextlib.suppress(InvalidApplicationMasterRequest, ApplicationAttemptNotFound):
                await client.call(ALLOCATE, AllocateRequestProto(), timeout=10)
            await client.close()
            await asyncio.sleep(0.1)


async def test_servers_of_another_kind_are_told(hadoop: HadoopCluster) -> None:
    manager = hadoop.state.addresses.resourcemanagers[0]
    for address, error in ((manager.web, RpcProtocolError), (manager.tracker, RpcAuthenticationError)):
        token = Token(b"i", b"p", "YARN_AM_RM_TOKEN")
        client = RpcClient([Address.parse(address)], APPLICATION_MASTER_PROTOCOL, token)
        with pytest.raises(error):
            await client.call(ALLOCATE, AllocateRequestProto(), timeout=10)
        await client.close()


@pytest.mark.parametrize("protection", ["auth", "auth-int", "auth-conf"])
async def test_every_quality_of_protection(pair: HadoopCluster, tmp_path: Path, protection: str) -> None:
    seen = await (await submit(pair, "echo", tmp_path, protection=(protection,))).seen()
    assert seen["exit status"] == 0


@pytest.mark.long
async def test_a_rolled_token_replaces_the_first(pair: HadoopCluster, tmp_path: Path) -> None:
    seen = await (await submit(pair, "roll", tmp_path)).seen()
    assert seen["kind"] == "YARN_AM_RM_TOKEN"
    assert seen["rolled"]


async def test_a_container_outlives_its_resource_manager(pair: HadoopCluster, tmp_path: Path) -> None:
    submitted = await submit(pair, "outlive", tmp_path)
    await submitted.running()
    pair.kill("resourcemanager-1", signal.SIGKILL)
    pair.activate(2)
    seen = await submitted.seen()
    assert seen["failed over"]
    assert seen["state"] == "C_RUNNING"
    assert ContainerId.parse(seen["container"]).epoch == 0
    assert ContainerId.parse(seen["later container"]).epoch > 0
    assert seen["exit status"] == -105


async def test_on_a_secure_cluster_with_privacy(secure_hadoop: HadoopCluster, tmp_path: Path) -> None:
    seen = await (await submit(secure_hadoop, "echo", tmp_path)).seen()
    assert seen["exit status"] == 0


async def test_weaker_protection_than_the_cluster_wants_is_refused(
    secure_hadoop: HadoopCluster, tmp_path: Path
) -> None:
    submitted = await submit(secure_hadoop, "echo", tmp_path, protection=("auth",))
    app = await submitted.ended()
    assert app["finalStatus"] == "FAILED"
    assert "the server offers protection auth-conf" in submitted.logs()


async def test_a_node_that_is_gone() -> None:
    node = RpcClient([Address("127.0.0.1", 1)], CONTAINER_MANAGEMENT_PROTOCOL, Token(b"i", b"p", "NMToken"))
    with pytest.raises(RpcConnectionError, match=r"cannot connect to 127\.0\.0\.1:1"):
        await node.call(CONTAINER_STATUSES, GetContainerStatusesRequestProto(), timeout=0.5)
    await node.close()
