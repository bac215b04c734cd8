"""What of an application's directory others may read who may look at its job: its records, and nothing else.

That is its status and result, its history, and the kept logs. Models, exports, checkpoints, inputs, what the job
returned and what was staged for it stay its owner's.
"""

from __future__ import annotations

from typing import Optional

from tony_provider.runtime import contract
from tony_provider.runtime.spec.model import EVERYBODY, JobSpec
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.readers import Readers, SharedFiles

FILES = (contract.STATUS_FILE, contract.RESULT_FILE)
DIRECTORIES = (contract.HISTORY_DIR, contract.LOGS_DIR)


def readers_of(job: JobSpec) -> Readers:
    """Who may look at the job beside its owner."""
    names = job.acls.viewers
    everybody = EVERYBODY in names.users
    return Readers(() if everybody else tuple(names.users), tuple(names.groups), everybody)


def shared_records(job: JobSpec, application_dir: str) -> Optional[SharedFiles]:
    """The records of an application that others may read; None: nobody else may."""
    readers = readers_of(job)
    if not readers:
        return None
    directory = uris.parse(application_dir)
    return SharedFiles(
        readers,
        files=frozenset(directory.child(name).path for name in FILES),
        directories=frozenset(directory.child(name).path for name in DIRECTORIES),
    )
