"""One life of an application master: from its container's files to the last word to the cluster."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime import container_inputs, contract
from tony_provider.runtime.am import open_files
from tony_provider.runtime.am.backends import open_resource_manager
from tony_provider.runtime.am.life import Life
from tony_provider.runtime.am.own_lineage import OwnLineage
from tony_provider.runtime.am.owner import Ownership, SupersededError
from tony_provider.runtime.am.resource_manager import ResourceManager
from tony_provider.runtime.am.service import Server
from tony_provider.runtime.am.web.front import Front
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.application_store import open_application_store
from tony_provider.runtime.container_inputs import ContainerError
from tony_provider.runtime.frameworks import get_framework
from tony_provider.runtime.hadoop.ids import ContainerId
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.protocol.status import FinalStatus
from tony_provider.runtime.storage import Storage
from tony_provider.runtime.task_identity import secret

log = logging.getLogger(__name__)


@attrs.frozen
class Surroundings:
    """What the container holds."""

    description: ApplicationDescription
    credentials: Credentials = attrs.field(repr=False)
    host: str  # of this node, as other nodes reach it
    attempt: int
    user: str = ""  # whom the cluster runs it as

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
        user = environ.get(contract.ENV_USER, "")
        return cls(description, credentials, host, container.attempt.number, user)


async def run(surroundings: Surroundings) -> FinalStatus:
    """Raises what keeps it from registering; after that it ends with a final status whatever happens."""
    description = surroundings.description
    open_files.allow(description.job.size)
    with open_application_store(description, surroundings.credentials.secrets) as storage:
        resource_manager = open_resource_manager(description, surroundings.credentials)
        try:
            return await serve(surroundings, storage, resource_manager)
        finally:
            await resource_manager.close()


async def serve(surroundings: Surroundings, storage: Storage, resource_manager: ResourceManager) -> FinalStatus:
    """The same with a store and a cluster at hand, which stay open."""
    description, secrets = surroundings.description, surroundings.credentials.secrets
    address_key = secret(secrets, contract.SECRET_ADDRESS_KEY)
    ownership = Ownership(storage, description, surroundings.attempt, address_key)
    lineage = OwnLineage(ownership)
    server = Server.bind(secrets, surroundings.host, description.job.port_range)
    front: Optional[Front] = None
    try:
        front = await Front.open(description, storage, surroundings.host, surroundings.user)
        registered = await resource_manager.register(
            host=server.address.host, port=server.address.port, tracking_url=front.url
        )
        front.gate.learn(registered.access_lists)
        log.info("registered; executors find this application master at %s", server.address)
        life = Life(surroundings.credentials, resource_manager, ownership, lineage, server, front)
        return await life.live(registered)
    except SupersededError as error:
        log.info("nothing is left to do here: %s", error)
        return FinalStatus.KILLED
    finally:
        lineage.close()
        await server.stop()
        if front:
            await front.close()
