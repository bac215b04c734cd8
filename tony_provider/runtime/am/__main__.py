"""The application master's program, ``python -m tony_provider.runtime.am``, run in its container."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from pathlib import Path

from tony_provider.runtime import (
    grpc_without_fork_handlers,  # noqa: F401
    own_log,
)
from tony_provider.runtime.am.master_lifecycle import MasterContext, run
from tony_provider.runtime.am.resource_manager import ResourceManagerError
from tony_provider.runtime.container_inputs import ContainerError
from tony_provider.runtime.hadoop.errors import HadoopError
from tony_provider.runtime.protocol.status import FinalStatus
from tony_provider.runtime.storage import StorageError
from tony_provider.runtime.task_identity import IdentityError

log = logging.getLogger("tony_provider.runtime.am")

# What people can put right; the traceback of anything else is worth having.
_EXPECTED = (ContainerError, ResourceManagerError, HadoopError, IdentityError, StorageError, OSError)


def main() -> int:
    """Run the application master; returns the exit code, 0 when the job succeeded."""
    gc.freeze()  # see launch/start.py
    gc.enable()
    own_log.configure()
    try:
        status = asyncio.run(run(MasterContext.of_process(os.environ, Path.cwd())))
    except _EXPECTED as error:
        log.debug("the application master cannot start", exc_info=True)
        log.error("the application master cannot start: %s", error)  # noqa: TRY400 - one clear line
        return 1
    return 0 if status is FinalStatus.SUCCEEDED else 1


if __name__ == "__main__":
    sys.exit(main())
