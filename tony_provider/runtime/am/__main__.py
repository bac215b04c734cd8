"""Entry point of the application master in its container: ``python -m tony_provider.runtime.am``."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys

from tony_provider.runtime.common import grpc_without_fork_handlers  # noqa: F401

# isort: split
from tony_provider.runtime.am.lifecycle import MasterContext, run
from tony_provider.runtime.am.resource_manager import ResourceManagerError
from tony_provider.runtime.application import ContainerError
from tony_provider.runtime.common import helper_processes
from tony_provider.runtime.hadoop.errors import HadoopError
from tony_provider.runtime.protocol.status import FinalStatus
from tony_provider.runtime.protocol.task_identity import IdentityError
from tony_provider.runtime.storage import StorageError

log = logging.getLogger("tony_provider.runtime.am")

# Errors that users can fix. Only for other errors is the traceback useful.
_EXPECTED = (ContainerError, ResourceManagerError, HadoopError, IdentityError, StorageError, OSError)


def main() -> int:
    """Run the application master and return the exit code, 0 if the job succeeded."""
    gc.freeze()  # see launch/start.py
    gc.enable()
    helper_processes.configure_log()
    try:
        status = asyncio.run(run(MasterContext.of_process(os.environ)))
    except _EXPECTED as error:
        log.debug("the application master cannot start", exc_info=True)
        log.error("the application master cannot start: %s", error)  # noqa: TRY400 - one clear line
        return 1
    return 0 if status is FinalStatus.SUCCEEDED else 1


if __name__ == "__main__":
    sys.exit(main())
