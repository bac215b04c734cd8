"""One life of an application master: from its container's files to the last word to the cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from pathlib import Path

import attrs

from tony_provider.runtime import container_inputs, contract
from tony_provider.runtime.am.backends import open_resource_manager
from tony_provider.runtime.am.launches import Launches, application_file
from tony_provider.runtime.am.master import Master
from tony_provider.runtime.am.records import Records
from tony_provider.runtime.am.resource_manager import ResourceManager, ResourceManagerError
from tony_provider.runtime.am.service import ExecutorService, Server
from tony_provider.runtime.am.session import snapshot
from tony_provider.runtime.am.session.actions import Verdict
from tony_provider.runtime.am.signals import Signals
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.application_store import open_application_store
from tony_provider.runtime.container_inputs import ContainerError
from tony_provider.runtime.frameworks import get_framework
from tony_provider.runtime.hadoop.ids import ContainerId
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus
from tony_provider.runtime.storage import Storage
from tony_provider.runtime.task_identity import secret

log = logging.getLogger(__name__)

_MOST_DIAGNOSTICS = 8192  # characters; ResourceManagers keep 64 KiB of an attempt's


@attrs.frozen
class Surroundings:
    """What the container holds."""

    description: ApplicationDescription
    credentials: Credentials = attrs.field(repr=False)
    host: str  # of this node, as other nodes reach it
    attempt: int

    @classmethod
    def of_process(cls, environ: Mapping[str, str], directory: Path) -> Surroundings:
        """Raises ContainerError."""
        description = container_inputs.description(directory)
        container_id = container_inputs.variable(environ, contract.ENV_CONTAINER_ID)
        credentials = container_inputs.credentials(environ)
        try:
            container = ContainerId.parse(container_id)
            get_framework(description.job.framework)
        except (ValueError, LookupError) as error:
            raise ContainerError(str(error)) from error
        host = container_inputs.variable(environ, contract.ENV_NODE_HOST)
        return cls(description, credentials, host, container.attempt.number)


async def run(surroundings: Surroundings) -> FinalStatus:
    """Raises what keeps it from registering; after that it ends with a final status whatever happens."""
    description = surroundings.description
    with open_application_store(description, surroundings.credentials.secrets) as storage:
        resource_manager = open_resource_manager(description, surroundings.credentials)
        try:
            return await serve(surroundings, storage, resource_manager)
        finally:
            await resource_manager.close()


async def serve(surroundings: Surroundings, storage: Storage, resource_manager: ResourceManager) -> FinalStatus:
    """The same with a store and a cluster at hand, which stay open."""
    description, credentials = surroundings.description, surroundings.credentials
    task_key = secret(credentials.secrets, contract.SECRET_TASK_KEY)
    server = Server.bind(credentials.secrets, surroundings.host, description.job.port_range)
    try:
        staged = await asyncio.to_thread(application_file, storage, description)
        launches = Launches(description, credentials, task_key, staged, str(server.address))
        records = Records(storage, description)
        master = Master(description, resource_manager, launches, records, am_attempt=surroundings.attempt)
        await server.start(ExecutorService(description.application_id, task_key, master))
        registered = await resource_manager.register(
            host=server.address.host, port=server.address.port, tracking_url=""
        )
        log.info("registered; executors find this application master at %s", server.address)
        records.start(master.status)
        signals = Signals(master, records, resource_manager.notice)
        signals.obey()
        verdict = await _verdict(master.run(registered))
        await signals.ignore()
        return await _end(verdict, master, records, resource_manager)
    finally:
        await server.stop()


async def _verdict(running: Awaitable[Verdict]) -> Verdict:
    """A fault of the application master itself is a verdict too."""
    try:
        return await running
    except Exception as error:
        log.exception("the application master failed")
        message = f"the application master failed: {type(error).__name__}: {error}; its log says more"
        return Verdict(FinalStatus.FAILED, message, Failure(FailureKind.INTERNAL, message))


async def _end(verdict: Verdict, master: Master, records: Records, resource_manager: ResourceManager) -> FinalStatus:
    await records.stop()
    diagnostics = verdict.message[-_MOST_DIAGNOSTICS:]
    missing = await records.write_result(snapshot.final_status(master.status(), verdict))
    if missing:
        diagnostics = f"{diagnostics}\n({', '.join(missing)} could not be written to the application's directory)"
    await records.remove_staging()
    try:
        await resource_manager.finish(verdict.status, diagnostics, "")
    except ResourceManagerError as error:
        log.warning("the cluster did not take the final status: %s", error)
    return verdict.status
