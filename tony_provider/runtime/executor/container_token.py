"""The token of the store in one container: in use there, and in the container's token file for whoever reads that."""

from __future__ import annotations

import logging
from pathlib import Path

from tony_provider.runtime import contract
from tony_provider.runtime.clock import moment
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.hadoop.errors import CredentialsError
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.private_file import write_private_file
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.store_token import replace_store_token

log = logging.getLogger(__name__)


def take_newer_token(context: ExecutorContext, newer: tony_pb2.NewerToken) -> None:
    """Use a newer token from now on, and have it in the token file. Blocks; what fails is logged.

    User processes that asked for HDFS find it in a file of theirs, which follows this one.
    """
    context.storage.take_token(newer.text)
    path = Path(context.container.environ[contract.ENV_TOKEN_FILE])
    try:
        credentials = Credentials.read_file(path)
        replace_store_token(credentials, newer.text)
        write_private_file(path, credentials.to_bytes())
    except (OSError, CredentialsError) as error:
        log.warning("the newer token of the store cannot be put into %s: %s", path.name, error)
    else:
        log.info("a newer token of the store, which holds until %s", moment(newer.until_ms))
