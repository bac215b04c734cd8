"""Letting those who may look at a job read its records on the store, where the store can tell them from others."""

from __future__ import annotations

import logging

from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout
from tony_provider.runtime import contract
from tony_provider.runtime.shared_records import DIRECTORIES, readers_of
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, Storage
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.runtime.storage.readers import Readers, Right

log = logging.getLogger(__name__)

_OTHERS_PASS = 0o001


def share_records(storage: Storage, layout: Layout, identity: Identity, application_id: str, job: JobSpec) -> None:
    """Let the job's viewers get to its records, and read what is there; what comes later its containers share.

    A store that cannot do that is told of in the log: the job is no worse without. Blocks.
    """
    readers = readers_of(job)
    if not readers:
        return
    directory = layout.application_dir(identity, application_id)
    way = [layout.root, layout.jobs_dir, layout.job_dir(identity), layout.applications_dir(identity)]
    try:
        for uri in way:
            if not _others_pass(status := storage.status(uri)):
                storage.let_pass(status, readers)
        storage.share(directory, readers, Right.PASS)
        for name in DIRECTORIES:
            storage.make_directories(uris.join(directory, name))
            storage.share(uris.join(directory, name), readers, Right.LIST)
        storage.share(uris.join(directory, contract.HISTORY_DIR, contract.SPECIFICATION_FILE), readers, Right.READ)
        _tell_of_closed_doors(storage, layout.root, readers)
    except StorageError as error:
        log.warning("acls: on the store only the job's owner may read its logs, status and history: %s", error)


def _tell_of_closed_doors(storage: Storage, root: str, readers: Readers) -> None:
    """Above the staging directory nothing is ours to open."""
    above = uris.parse(root).parent
    while above.path != "/":
        if not _others_pass(storage.status(str(above))):
            log.warning(
                "acls: not everybody may pass through %s; those who may look at the job reach its files only where "
                "that directory has an access list with them: hdfs dfs -setfacl -m %s %s",
                above,
                ",".join(readers.named(Right.PASS)) or "other::--x",
                above.path,
            )
        above = above.parent


def _others_pass(status: FileStatus) -> bool:
    return status.permission is None or bool(status.permission & _OTHERS_PASS)
