"""The upload of what the leading task leaves: put aside on the store, then in place by one rename."""

from __future__ import annotations

import logging
import secrets
import threading
from functools import partial
from pathlib import Path
from typing import Callable

from tony_provider.runtime import contract
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.order import Order
from tony_provider.runtime.executor.process_stop import ProcessStop
from tony_provider.runtime.executor.return_value import keep_returned, read_returned
from tony_provider.runtime.executor.tree_upload import TreeUpload, check, is_empty
from tony_provider.runtime.executor.upload_retries import UploadRetries
from tony_provider.runtime.storage import Storage, StorageError, StorageExists, uris

log = logging.getLogger(__name__)


async def keep_results(
    context: ExecutorContext, order: Order, stopping: ProcessStop, retries: UploadRetries, warn: Callable[[str], None]
) -> str:
    """Commit what the user process left as its model to the store, and what it returned.

    Returns the model's URI there, empty when it left none. ``warn``: see TreeUpload. Raises NotKeptError,
    UploadCancelledError.
    """
    return await retries.run(partial(_keep, context, order, stopping.cancelled, warn))


def _keep(context: ExecutorContext, order: Order, cancelled: threading.Event, warn: Callable[[str], None]) -> str:
    directory, model = context.container.description.application_dir, context.workspace.model
    returned = read_returned(context.workspace.result_file)  # before the model, which may take long and be for nothing
    uri = ""
    if not is_empty(model):
        uri = commit_directory(context.storage, model, uris.join(directory, contract.MODEL_DIR), cancelled, warn)
    keep_returned(
        context.storage, uris.join(directory, contract.RETURN_VALUE_FILE), returned, may_exist=order.start > 1
    )
    return uri


def commit_directory(
    storage: Storage, directory: Path, target: str, cancelled: threading.Event, warn: Callable[[str], None]
) -> str:
    """Make everything in ``directory`` the content of ``target``, a URI, which is returned. Blocks.

    What is there already (of a former generation) is replaced; between two renames there is nothing.
    Raises StorageError, OSError, UploadCancelledError.
    """
    mark = secrets.token_hex(4)
    temporary = f"{target}.tmp-{mark}"
    try:
        TreeUpload(storage, cancelled, warn).run(directory, temporary)
        check(cancelled)
        _put_in_place(storage, temporary, target, f"{target}.old-{mark}")
    except BaseException:
        _remove(storage, temporary)
        raise
    return target


def _remove(storage: Storage, uri: str) -> None:
    """What is in the way of an error that is to be told is only logged."""
    try:
        storage.remove(uri, recursive=True)
    except StorageError as error:
        log.warning("%s is left on the store: %s", uri, error)


def _put_in_place(storage: Storage, temporary: str, target: str, former: str) -> None:
    try:
        storage.rename(temporary, target)
    except StorageExists:
        storage.rename(target, former)
        try:
            storage.rename(temporary, target)
        except StorageError:
            _put_back(storage, former, target)
            raise
        storage.remove(former, recursive=True)


def _put_back(storage: Storage, former: str, target: str) -> None:
    try:
        storage.rename(former, target)
    except StorageError as error:
        log.warning("what %s held before is now in %s: %s", target, former, error)
