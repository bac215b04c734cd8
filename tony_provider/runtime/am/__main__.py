"""Entry point of the application master in its container: ``python -m tony_provider.runtime.am``."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from typing import NoReturn

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


def main() -> NoReturn:
    """Run the application master, and exit: with code 0 if the job succeeded, otherwise with code 1."""
    gc.freeze()  # see launch/start.py
    gc.enable()
    helper_processes.configure_log()
    code = 1
    try:
        if asyncio.run(run(MasterContext.of_process(os.environ))) is FinalStatus.SUCCEEDED:
            code = 0
    except _EXPECTED as error:
        log.debug("the application master cannot start", exc_info=True)
        log.error("the application master cannot start: %s", error)  # noqa: TRY400 - one clear line
    except Exception:
        log.exception("internal error in the application master")
    logging.shutdown()
    os._exit(code)  # a regular exit takes 0.1 s to free the memory of modules


if __name__ == "__main__":
    main()
