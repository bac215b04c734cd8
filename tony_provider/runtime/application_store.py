"""Open the application's store, share its records with the job's viewers, and clean it up after the job.

Viewers get read access to the records only: status, result, history and kept logs. Only the owner can read models,
exports, checkpoints, inputs, the job's return value, and staged files.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Optional

from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import APPLICATION_LIMIT
from tony_provider.runtime.common.codec import CodecError, load_json
from tony_provider.runtime.jobspec.model import EVERYBODY, JobSpec
from tony_provider.runtime.outputs.output_place import OutputPlace
from tony_provider.runtime.outputs.publication import clear_away
from tony_provider.runtime.protocol.store_tokens import other_tokens
from tony_provider.runtime.storage import Storage, StorageNotFound, StorageTooLarge, open_storage, read_whole, uris
from tony_provider.runtime.storage.base import Readers, SharedFiles
from tony_provider.runtime.storage.stores import JobStores, remove_leftovers
from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage

log = logging.getLogger(__name__)


SHARED_FILES = (contract.STATUS_FILE, contract.RESULT_FILE)
SHARED_DIRECTORIES = (contract.HISTORY_DIR, contract.LOGS_DIR)


def readers_of(job: JobSpec) -> Readers:
    """Return the users and groups that may view the job, in addition to its owner."""
    names = job.acls.viewers
    everybody = EVERYBODY in names.users
    return Readers(() if everybody else tuple(names.users), tuple(names.groups), everybody)


def shared_records(job: JobSpec, application_dir: str) -> Optional[SharedFiles]:
    """Return the records of an application that its viewers may read, or None if the job has no viewers."""
    readers = readers_of(job)
    if not readers:
        return None
    directory = uris.parse(application_dir)
    return SharedFiles(
        readers,
        files=frozenset(directory.child(name).path for name in SHARED_FILES),
        directories=frozenset(directory.child(name).path for name in SHARED_DIRECTORIES),
    )


def open_application_store(description: ApplicationDescription, secrets: Mapping[str, bytes]) -> Storage:
    """Open the store of the application and the other HDFS file systems that it names. The caller closes it.

    Sends no request yet. Raises StorageError.
    """
    token = secrets.get(contract.SECRET_STORE_TOKEN)
    tokens = other_tokens(secrets)
    return open_storage(
        description.application_dir,
        webhdfs=description.webhdfs,
        delegation_token=token.decode("ascii") if token else None,
        shared=shared_records(description.job, description.application_dir),
        others={
            each.name: WebHdfsStorage(each.webhdfs, delegation_token=tokens.get(each.name))
            for each in description.other_hdfs
        },
    )


def clean_up(storage: Storage, application_dir: str) -> None:
    """Remove what an ended application no longer needs, but not its results. Idempotent. Raises StorageError."""
    clear_outputs(storage, application_dir)
    storage.remove(uris.join(application_dir, contract.LAUNCH_DIR), recursive=True)
    remove_leftovers(storage, application_dir, without=[contract.MODEL_DIR, contract.EXPORTS_DIR])
    exports = uris.join(application_dir, contract.EXPORTS_DIR)
    remove_leftovers(storage, exports, without=_whole_exports(storage, exports))


def clear_outputs(storage: Storage, application_dir: str) -> None:
    """Remove the temporary files that tasks have left next to the paths of outputs. Raises StorageError.

    Covers the job's own store, and other stores if they are reachable from here.
    """
    about = uris.join(application_dir, contract.LAUNCH_DIR, contract.APPLICATION_FILE)
    try:
        description = load_json(read_whole(storage, about, APPLICATION_LIMIT), ApplicationDescription)
    except StorageNotFound:
        return  # it was already cleaned up
    except (CodecError, StorageTooLarge) as error:
        log.warning("%s cannot be read, so that nothing is removed beside its outputs: %s", about, error)
        return
    # The job's programs can write that file, so it must not determine the application's ID or grant access to local
    # disks.
    application_id, local = uris.name(application_dir), uris.scheme(application_dir) == "file"
    stores = JobStores(storage, application_dir)
    try:
        for spec in description.job.outputs.values():
            if uris.scheme(spec.path) == "file" and not local:
                continue  # a directory of the nodes
            try:
                clear_away(stores.of(spec.path), OutputPlace(spec.path, application_id))
            except Exception:  # drivers of other stores raise arbitrary exceptions
                log.warning("what is left beside %s could not be removed", spec.path, exc_info=True)
    finally:
        stores.close()


def _whole_exports(storage: Storage, uri: str) -> list[str]:
    """Return the names of complete exports. Their content belongs to the program."""
    try:
        found = storage.list(uri)
    except StorageNotFound:
        return []
    return [status.name for status in found if contract.step_of_export(status.name) is not None]
