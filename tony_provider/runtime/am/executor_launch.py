"""Build the launch context of executors' containers: command, environment, files, credentials."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from tony_provider.runtime.am.resource_manager import Container, Launch
from tony_provider.runtime.application import ApplicationDescription, LocalizedResource
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.hadoop.tokens import AM_RM_TOKEN, NM_TOKEN, REGISTRY_TOKEN, Credentials
from tony_provider.runtime.jobspec.container_content import image_of, is_docker_image
from tony_provider.runtime.launch.launch_context import container_files, launch_command, launch_environment
from tony_provider.runtime.protocol.task_identity import TaskIdentity, make_token
from tony_provider.runtime.storage import Storage, uris

# The application master keeps all other secrets.
_HANDED_ON = frozenset(
    {
        contract.SECRET_DESCRIPTION,
        contract.SECRET_CA,
        contract.SECRET_CLIENT_CERTIFICATE,
        contract.SECRET_CLIENT_KEY,
        contract.SECRET_ADDRESS_KEY,
        contract.SECRET_JOB_KEY,
        contract.SECRET_STORE_TOKEN,
    }
)
_KEPT_TOKENS = frozenset({AM_RM_TOKEN, NM_TOKEN})


def application_file(
    storage: Storage, description: ApplicationDescription, secrets: Mapping[str, bytes]
) -> LocalizedResource:
    """Return the staged description as a file for executors' containers. It cannot contain its own size and checksum.

    YARN treats it as the same file as the one of the submission. Nodes that already have it can thus start the next
    application master without the submission's token, which may have expired. Blocks. Raises StorageError.
    """
    uri = uris.join(description.application_dir, contract.LAUNCH_DIR, contract.APPLICATION_FILE)
    status = storage.status(uri)
    submitted = secrets.get(contract.SECRET_DESCRIPTION)
    sha256 = submitted.decode() if submitted else None
    return LocalizedResource(contract.APPLICATION_FILE, uri, status.size, status.modified_ms, sha256=sha256)


@attrs.frozen
class ExecutorLaunches:
    """Builds the launch contexts of executors."""

    description: ApplicationDescription
    credentials: Credentials = attrs.field(repr=False)  # the application master's own
    task_key: bytes = attrs.field(repr=False)
    application_file: LocalizedResource
    address: Address  # of the gRPC server

    def launch(self, task: str, attempt: int, container: Container) -> Launch:
        """Return the launch of one container. Its credentials prove the identity of its executor."""
        description = self.description
        identity = TaskIdentity(description.application_id, container.id, task, attempt)
        resources = description.resources_of(identity.task_type)
        return Launch(
            command=launch_command("executor", description.runtime, description.runtime_pythons, resources),
            env=self._environment(identity),
            files=container_files(description.runtime, self.application_file, resources),
            credentials=self._credentials(identity),
        )

    def _environment(self, identity: TaskIdentity) -> dict[str, str]:
        return {
            **launch_environment(self.description, identity.task_type),
            contract.ENV_AM_ADDRESS: str(self.address),
            contract.ENV_TASK: identity.task,
            contract.ENV_TASK_ATTEMPT: str(identity.attempt),
        }

    def _credentials(self, identity: TaskIdentity) -> bytes:
        mine = self.credentials
        withheld = set(map(contract.user_secret, self.description.job.secrets_withheld(identity.task_type)))
        secrets = {
            name: value
            for name, value in mine.secrets.items()
            if name in _HANDED_ON
            or name.startswith(contract.SECRET_OTHER_TOKEN_PREFIX)
            or (name.startswith(contract.SECRET_USER_PREFIX) and name not in withheld)
        }
        secrets[contract.SECRET_TASK_TOKEN] = make_token(self.task_key, identity).encode()
        in_docker = is_docker_image(image_of(self.description.job, identity.task_type))
        withheld_tokens = _KEPT_TOKENS if in_docker else _KEPT_TOKENS | {REGISTRY_TOKEN}
        tokens = {alias: token for alias, token in mine.tokens.items() if token.kind not in withheld_tokens}
        return Credentials(tokens, secrets).to_bytes()
