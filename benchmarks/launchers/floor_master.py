"""The least application master in Python that there can be: it asks for containers, launches, and waits for their ends.

`python floor_master.py LIBRARIES SCHEDULER TASKS MEMORY COMMAND`, in a container. It speaks Hadoop RPC by the
runtime's own library, and nothing else: no executors, no addresses, no store, no state.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys

LIBRARIES, SCHEDULER, TASKS, MEMORY, COMMAND = sys.argv[1:]
sys.path.insert(0, LIBRARIES)

from tony_provider.runtime.common.network import Address  # noqa: E402
from tony_provider.runtime.hadoop import yarn_records  # noqa: E402
from tony_provider.runtime.hadoop.proto import yarn_pb2 as yarn  # noqa: E402
from tony_provider.runtime.hadoop.proto import yarn_service_pb2 as service  # noqa: E402
from tony_provider.runtime.hadoop.rpc import RpcClient  # noqa: E402
from tony_provider.runtime.hadoop.tokens import Credentials, Token  # noqa: E402
from tony_provider.runtime.hadoop.yarn_records import (  # noqa: E402
    ALLOCATE,
    APPLICATION_MASTER_PROTOCOL,
    CONTAINER_MANAGEMENT_PROTOCOL,
    FINISH,
    REGISTER,
    START_CONTAINERS,
    node_address,
)

BEAT = 0.1  # seconds
TIMEOUT = 20.0


class Floor:
    def __init__(self) -> None:
        credentials = Credentials.read_file(os.environ["HADOOP_TOKEN_FILE_LOCATION"])
        self.scheduler = RpcClient(
            [Address.parse(SCHEDULER)], APPLICATION_MASTER_PROTOCOL, credentials.application_master_token()
        )
        self.context = yarn_records.launch_context(
            commands=[COMMAND], environment={}, local_resources={}, credentials=Credentials()
        )
        self.nodes: dict[Address, RpcClient] = {}
        self.left = int(TASKS)
        self.failed = 0

    async def run(self) -> None:
        registration = service.RegisterApplicationMasterRequestProto(
            host=socket.gethostname(), rpc_port=-1, tracking_url=""
        )
        await self.scheduler.call(REGISTER, registration, timeout=TIMEOUT)
        capability = yarn_records.resource(int(MEMORY), 1)
        asks = [yarn_records.resource_request(capability, self.left, priority=1, allocation_request_id=1)]
        answered = 0
        while True:
            request = service.AllocateRequestProto(ask=asks, response_id=answered)
            answer = await self.scheduler.call(ALLOCATE, request, timeout=TIMEOUT)
            asks, answered = [], answer.response_id
            await self.launch(answer)
            for status in answer.completed_container_statuses:
                self.left -= 1
                self.failed += status.exit_status != 0
            if not self.left:
                break
            await asyncio.sleep(BEAT)
        final = yarn.APP_FAILED if self.failed else yarn.APP_SUCCEEDED
        finish = service.FinishApplicationMasterRequestProto(final_application_status=final)
        while True:
            if (await self.scheduler.call(FINISH, finish, timeout=TIMEOUT)).isUnregistered:
                return
            await asyncio.sleep(BEAT)

    async def launch(self, answer: service.AllocateResponseProto) -> None:
        for entry in answer.nm_tokens:
            address = node_address(entry.nodeId)
            self.nodes[address] = RpcClient([address], CONTAINER_MANAGEMENT_PROTOCOL, Token.from_proto(entry.token))
        by_node: dict[Address, list[yarn.ContainerProto]] = {}
        for container in answer.allocated_containers:
            by_node.setdefault(node_address(container.nodeId), []).append(container)
        await asyncio.gather(*(self.start(address, granted) for address, granted in by_node.items()))

    async def start(self, address: Address, containers: list[yarn.ContainerProto]) -> None:
        requests = [yarn_records.start_request(self.context, container) for container in containers]
        request = service.StartContainersRequestProto(start_container_request=requests)
        answer = await self.nodes[address].call(START_CONTAINERS, request, timeout=TIMEOUT)
        assert not answer.failed_requests, answer


async def main() -> None:
    await Floor().run()


asyncio.run(main())
