"""The executor's program, ``python -m tony_provider.runtime.executor``, in a container that the master launched."""

from __future__ import annotations

import os

from tony_provider.runtime.common import contract
from tony_provider.runtime.executor import processes

guarded = None
if container := os.environ.get(contract.ENV_CONTAINER_ID):  # without one the executor says so itself
    # Before gRPC is loaded: nothing may fork beside it.
    guarded = processes.start_guard(f"{contract.ENV_CONTAINER}={container}")

from tony_provider.runtime.common import grpc_without_fork_handlers  # noqa: E402, F401
from tony_provider.runtime.executor.executor import main  # noqa: E402

main(guarded)
