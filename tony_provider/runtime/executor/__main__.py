"""Entry point of the executor: ``python -m tony_provider.runtime.executor`` in a container of the job."""

from __future__ import annotations

import os

from tony_provider.runtime.common import contract
from tony_provider.runtime.executor import processes

guarded = None
if container := os.environ.get(contract.ENV_CONTAINER_ID):  # otherwise the executor reports that the ID is missing
    # Start the guard before gRPC is loaded, because no process may be forked while gRPC runs.
    guarded = processes.start_guard(f"{contract.ENV_CONTAINER}={container}")

from tony_provider.runtime.common import grpc_without_fork_handlers  # noqa: E402, F401
from tony_provider.runtime.executor.executor import main  # noqa: E402

main(guarded)
