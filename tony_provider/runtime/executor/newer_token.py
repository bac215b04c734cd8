"""Newer tokens of the store in one container: in use there, and for user processes that asked for HDFS."""

from __future__ import annotations

import logging

from tony_provider.runtime.clock import moment
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.hadoop.errors import CredentialsError
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.store_token import OtherToken, StoreToken

log = logging.getLogger(__name__)


def take_newer_token(context: ExecutorContext, newer: tony_pb2.NewerToken) -> None:
    """Use a newer token from now on; what fails is logged.

    User processes that asked for HDFS find it in a file of theirs, which follows the container's credentials.
    """
    others = [OtherToken(each.name, each.text, each.until_ms) for each in newer.others]
    token = StoreToken(newer.text, newer.until_ms, others)
    context.storage.take_token(token.text)
    for other in token.others:
        context.storage.take_token(other.text, other.name)
    try:
        context.container.credentials.take_store_token(token)
    except CredentialsError as error:
        log.warning("the newer token of the store is not one for user processes: %s", error)
    else:
        log.info("a newer token of the store, which holds until %s", moment(newer.until_ms))
