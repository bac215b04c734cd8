"""Small application masters for a real YARN: each runs one scenario and writes what it saw as JSON.

Started by YARN as ``python -m tests.runtime.hadoop.masters SCENARIO --report FILE --scheduler host:port,…``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs

from tony_provider.runtime.common.contract import ENV_TOKEN_FILE
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.hadoop import errors, yarn_records
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn
from tony_provider.runtime.hadoop.proto import yarn_service_pb2 as service
from tony_provider.runtime.hadoop.rpc import ConnectionSettings, Method, RpcClient
from tony_provider.runtime.hadoop.tokens import AM_RM_TOKEN, Credentials, Token
from tony_provider.runtime.hadoop.yarn_records import (
    ALLOCATE,
    APPLICATION_MASTER_PROTOCOL,
    CONTAINER_MANAGEMENT_PROTOCOL,
    CONTAINER_STATUSES,
    FINISH,
    REGISTER,
    START_CONTAINERS,
    ContainerId,
    node_address,
)

TIMEOUT = 60.0
HEARTBEAT_SECONDS = 0.1
MEMORY, VCORES = 64, 1
STOP_CONTAINERS = Method("stopContainers", service.StopContainersResponseProto, idempotent=True)


@attrs.define
class Master:
    """One attempt's view: the protocol, the last response_id, and the tokens of the nodes."""

    protocol: RpcClient
    credentials: Credentials
    settings: ConnectionSettings
    files: dict[str, yarn.LocalResourceProto]
    report: dict[str, Any]
    response_id: int = 0
    node_tokens: dict[Address, Token] = attrs.field(factory=dict)
    acls: list[yarn.ApplicationACLMapProto] = attrs.field(factory=list)

    async def register(self) -> service.RegisterApplicationMasterResponseProto:
        request = service.RegisterApplicationMasterRequestProto(host="localhost", rpc_port=-1, tracking_url="")
        answer = await self.protocol.call(REGISTER, request, timeout=TIMEOUT)
        self.response_id = 0
        self.acls = list(answer.application_ACLs)
        return answer

    async def allocate(self, *asks: yarn.ResourceRequestProto) -> service.AllocateResponseProto:
        request = service.AllocateRequestProto(ask=asks, response_id=self.response_id, progress=0.5)
        answer = await self.protocol.call(ALLOCATE, request, timeout=TIMEOUT)
        self.response_id = answer.response_id
        for entry in answer.nm_tokens:
            self.node_tokens[node_address(entry.nodeId)] = Token.from_proto(entry.token)
        return answer

    async def one_container(self, **others: int) -> yarn.ContainerProto:
        ask = yarn_records.resource_request(
            yarn_records.resource(MEMORY, VCORES, others), 1, priority=1, allocation_request_id=7
        )
        answer = await self.allocate(ask)
        while not answer.allocated_containers:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            answer = await self.allocate()
        return answer.allocated_containers[0]

    async def completed(self, container: yarn.ContainerProto) -> yarn.ContainerStatusProto:
        while True:
            for status in (await self.allocate()).completed_container_statuses:
                if status.container_id == container.id:
                    return status
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def node(self, container: yarn.ContainerProto) -> RpcClient:
        address = node_address(container.nodeId)
        return RpcClient([address], CONTAINER_MANAGEMENT_PROTOCOL, self.node_tokens[address], settings=self.settings)

    def start_request(self, container: yarn.ContainerProto, *command: str) -> service.StartContainerRequestProto:
        context = yarn_records.launch_context(
            commands=[*command, "1><LOG_DIR>/stdout", "2><LOG_DIR>/stderr"],
            environment={"PYTHONPATH": os.environ["PYTHONPATH"], "GREETING": "hello"},
            local_resources=self.files,
            credentials=Credentials(
                {alias: token for alias, token in self.credentials.tokens.items() if token.kind != AM_RM_TOKEN},
                {**self.credentials.secrets, "task": b"of this task"},
            ),
            acls=self.acls,
        )
        return yarn_records.start_request(context, container)

    async def finish(self) -> None:
        """The report first: the application counts as finished before this process has ended."""
        _write(self.report, Path(self.report["path"]))
        request = service.FinishApplicationMasterRequestProto(
            final_application_status=yarn.APP_SUCCEEDED, diagnostics="said what it had to say", tracking_url=""
        )
        while True:
            if (await self.protocol.call(FINISH, request, timeout=TIMEOUT)).isUnregistered:
                return
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def note_error(self, name: str, call: Awaitable[object]) -> None:
        """Which type of error a call that must fail raises."""
        try:
            await call
        except errors.HadoopError as error:
            self.report[name] = [type(error).__name__, str(error)]
        else:
            self.report[name] = None


async def start(node: RpcClient, request: service.StartContainerRequestProto) -> service.StartContainersResponseProto:
    requests = service.StartContainersRequestProto(start_container_request=[request])
    return await node.call(START_CONTAINERS, requests, timeout=TIMEOUT)


async def stop(node: RpcClient, container: ContainerId) -> service.StopContainersResponseProto:
    request = service.StopContainersRequestProto(container_id=[container.to_proto()])
    return await node.call(STOP_CONTAINERS, request, timeout=TIMEOUT)


async def statuses(node: RpcClient, container: ContainerId) -> service.GetContainerStatusesResponseProto:
    request = service.GetContainerStatusesRequestProto(container_id=[container.to_proto()])
    return await node.call(CONTAINER_STATUSES, request, timeout=TIMEOUT)


async def echo(master: Master) -> None:
    """One container from asking to its end."""
    registered = await master.register()
    master.report["queue"] = registered.queue
    master.report["maximum"] = [registered.maximumCapability.memory, registered.maximumCapability.virtual_cores]
    master.report["maximum others"] = yarn_records.other_resources(registered.maximumCapability)
    container = await master.one_container(**{"yarn.io/gpu": 1})
    master.report["container"] = str(ContainerId.from_proto(container.id))
    master.report["allocation_request_id"] = container.allocation_request_id
    master.report["others"] = yarn_records.other_resources(container.resource)
    node = master.node(container)
    request = master.start_request(container, "exec", sys.executable, "-m", "tests.runtime.hadoop.echo_task")
    started = await start(node, request)
    master.report["failed"] = [str(errors.serialized_error(f.exception)) for f in started.failed_requests]
    status = await master.completed(container)
    master.report["exit status"] = status.exit_status
    await node.close()
    await master.finish()


async def mistakes(master: Master) -> None:
    """What the daemons say to calls that are wrong, as types."""
    await master.note_error("allocate before register", master.allocate())
    await master.register()
    await master.note_error("register twice", master.register())
    too_large = yarn_records.resource(10**9, 1)
    await master.note_error(
        "more than the maximum",
        master.allocate(yarn_records.resource_request(too_large, 1, priority=1, allocation_request_id=1)),
    )
    unknown = yarn_records.resource_request(
        yarn_records.resource(MEMORY, 1), 1, priority=1, allocation_request_id=1, node_label="no_such_label"
    )
    await master.note_error("an unknown label", master.allocate(unknown))
    await _wrong_tokens(master)

    container = await master.one_container()
    node = master.node(container)
    request = master.start_request(container, "exec", "sleep", "600")
    await start(node, request)
    own = ContainerId.from_proto(container.id)
    master.report["second start"] = _failures(await start(node, request))
    running = await statuses(node, own)
    master.report["state"] = yarn.ContainerStateProto.Name(running.status[0].state)
    other = attrs.evolve(own, number=own.number + 1000)
    master.report["unknown container"] = _failures(await statuses(node, other))
    await stop(node, own)
    master.report["exit status"] = (await master.completed(container)).exit_status
    await node.close()

    guessed = attrs.evolve(master.node_tokens[node.address], password=b"guessed")
    wrong = RpcClient([node.address], CONTAINER_MANAGEMENT_PROTOCOL, guessed, settings=master.settings)
    await master.note_error("a node's wrong token", statuses(wrong, own))
    await wrong.close()
    # For the test, which tries it when this application is over.
    master.report["token"] = master.credentials.application_master_token().to_url_string()
    await master.finish()


async def _wrong_tokens(master: Master) -> None:
    good = master.credentials.application_master_token()
    # The ResourceManager hangs up on the second one, and so the client tries again until its deadline.
    wrong = {
        "a wrong password": (attrs.evolve(good, password=b"guessed"), TIMEOUT),
        "an identifier that is none": (attrs.evolve(good, identifier=b"nobody"), 1.0),
    }
    for name, (token, timeout) in wrong.items():
        client = RpcClient([master.protocol.address], APPLICATION_MASTER_PROTOCOL, token, settings=master.settings)
        await master.note_error(name, client.call(ALLOCATE, service.AllocateRequestProto(), timeout=timeout))
        await client.close()


def _failures(answer: Any) -> list[list[str]]:
    failures = [errors.serialized_error(failure.exception) for failure in answer.failed_requests]
    return [[type(error).__name__, str(error)] for error in failures]


async def outlive(master: Master) -> None:
    """A container that runs while its ResourceManager is exchanged, and one that is asked for afterwards."""
    await master.register()
    container = await master.one_container()
    node = master.node(container)
    await start(node, master.start_request(container, "exec", "sleep", "600"))
    first = master.protocol.address
    _write(master.report, Path(master.report["path"] + ".running"))
    while True:
        try:
            await master.allocate()
        except errors.ApplicationMasterNotRegistered:
            break
        await asyncio.sleep(HEARTBEAT_SECONDS)
    await master.register()
    master.report["failed over"] = master.protocol.address != first
    later = await master.one_container()
    master.report["container"] = str(ContainerId.from_proto(container.id))
    master.report["later container"] = str(ContainerId.from_proto(later.id))
    own = ContainerId.from_proto(container.id)
    running = await statuses(node, own)
    master.report["state"] = yarn.ContainerStateProto.Name(running.status[0].state)
    await stop(node, own)
    master.report["exit status"] = (await master.completed(container)).exit_status
    await node.close()
    await master.finish()


async def roll(master: Master) -> None:
    """Stays until YARN rolls the master's token, and goes on with the new one over a new connection."""
    await master.register()
    answer = await master.allocate()
    while not answer.HasField("am_rm_token"):
        await asyncio.sleep(1.0)
        answer = await master.allocate()
    token = Token.from_proto(answer.am_rm_token)
    master.report["kind"] = token.kind
    master.report["rolled"] = token.identifier != master.credentials.application_master_token().identifier
    await master.protocol.close()
    master.protocol = RpcClient([master.protocol.address], APPLICATION_MASTER_PROTOCOL, token, settings=master.settings)
    await master.allocate()
    await master.finish()
    await master.protocol.close()


SCENARIOS: dict[str, Callable[[Master], Awaitable[None]]] = {
    "echo": echo,
    "mistakes": mistakes,
    "outlive": outlive,
    "roll": roll,
}


def _write(report: dict[str, Any], path: Path) -> None:
    draft = path.with_name(path.name + ".draft")
    draft.write_text(json.dumps(report))
    draft.rename(path)


def _file(text: str) -> yarn.LocalResourceProto:
    """From ``URI,size,modification time``."""
    uri, size, modified_ms = text.rsplit(",", 2)
    return yarn_records.local_resource(uri, size=int(size), modified_ms=int(modified_ms))


async def run(
    scenario: str, report: Path, scheduler: list[Address], protection: tuple[str, ...], files: list[str]
) -> None:
    credentials = Credentials.read_file(os.environ[ENV_TOKEN_FILE])
    settings = ConnectionSettings(protection=protection)
    protocol = RpcClient(
        scheduler, APPLICATION_MASTER_PROTOCOL, credentials.application_master_token(), settings=settings
    )
    inputs = {f"input-{n}": _file(text) for n, text in enumerate(files)}
    master = Master(protocol, credentials, settings, inputs, {"path": str(report)})
    try:
        await SCENARIOS[scenario](master)
    finally:
        await protocol.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--scheduler", required=True)
    parser.add_argument("--protection", required=True)
    parser.add_argument("--file", action="append", default=[])
    arguments = parser.parse_args()
    addresses = [Address.parse(text) for text in arguments.scheduler.split(",")]
    quality = tuple(arguments.protection.split(","))
    asyncio.run(run(arguments.scenario, arguments.report, addresses, quality, arguments.file))
