"""The executor's program, ``python -m tony_provider.runtime.executor``, in a container that the master launched."""

from __future__ import annotations

import os

from tony_provider.runtime import contract
from tony_provider.runtime.executor import guard

guarded = None
if container := os.environ.get(contract.ENV_CONTAINER_ID):  # without one the executor says so itself
    guarded = guard.post(f"{contract.ENV_CONTAINER}={container}")  # before gRPC is there, beside which nothing may fork

from tony_provider.runtime import grpc_without_fork_handlers  # noqa: E402, F401
from tony_provider.runtime.executor.main import main  # noqa: E402

main(guarded)
