"""The store of a job, opened from within its containers."""

from __future__ import annotations

from collections.abc import Mapping

from tony_provider.runtime import contract
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.shared_records import shared_records
from tony_provider.runtime.storage import Storage, open_storage


def open_application_store(description: ApplicationDescription, secrets: Mapping[str, bytes]) -> Storage:
    """The store of the application. Nothing is asked of it yet; close it. Raises StorageError."""
    token = secrets.get(contract.SECRET_STORE_TOKEN)
    return open_storage(
        description.application_dir,
        webhdfs=description.webhdfs,
        delegation_token=token.decode("ascii") if token else None,
        shared=shared_records(description.job, description.application_dir),
    )
