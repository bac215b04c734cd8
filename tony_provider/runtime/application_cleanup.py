"""The clean-up after an application, by its master or by whoever finds it ended on Airflow's side."""

from __future__ import annotations

from tony_provider.runtime import contract
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageNotFound
from tony_provider.runtime.storage.leftovers import remove_leftovers


def clean_up(storage: Storage, application_dir: str) -> None:
    """Remove what an application that has ended no longer needs; its results stay. Idempotent. Raises StorageError."""
    storage.remove(uris.join(application_dir, contract.LAUNCH_DIR), recursive=True)
    remove_leftovers(storage, application_dir, without=[contract.MODEL_DIR, contract.EXPORTS_DIR])
    exports = uris.join(application_dir, contract.EXPORTS_DIR)
    remove_leftovers(storage, exports, without=_whole_exports(storage, exports))


def _whole_exports(storage: Storage, uri: str) -> list[str]:
    """Their names: what is in them is the program's."""
    try:
        found = storage.list(uri)
    except StorageNotFound:
        return []
    return [status.name for status in found if contract.step_of_export(status.name) is not None]
