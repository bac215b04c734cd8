"""The store of a job, opened from within its containers."""

from __future__ import annotations

from collections.abc import Mapping

from tony_provider.runtime import contract
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.protocol.store_token import other_tokens
from tony_provider.runtime.shared_records import shared_records
from tony_provider.runtime.storage import Storage, open_storage
from tony_provider.runtime.storage.webhdfs.several import SeveralHdfs
from tony_provider.runtime.storage.webhdfs.store import WebHdfsStorage


def open_application_store(description: ApplicationDescription, secrets: Mapping[str, bytes]) -> Storage:
    """The store of the application, and what other HDFS it names. Nothing is asked of it yet; close it.

    Raises StorageError.
    """
    token = secrets.get(contract.SECRET_STORE_TOKEN)
    storage = open_storage(
        description.application_dir,
        webhdfs=description.webhdfs,
        delegation_token=token.decode("ascii") if token else None,
        shared=shared_records(description.job, description.application_dir),
    )
    if not isinstance(storage, WebHdfsStorage) or not description.other_hdfs:
        return storage
    tokens = other_tokens(secrets)
    others = {
        each.name: WebHdfsStorage(each.webhdfs, delegation_token=tokens.get(each.name))
        for each in description.other_hdfs
    }
    return SeveralHdfs(storage, others)
