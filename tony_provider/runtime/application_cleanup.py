"""The clean-up after an application, by its master or by whoever finds it ended on Airflow's side."""

from __future__ import annotations

import logging

from tony_provider.runtime import contract
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.codec import CodecError, load_json
from tony_provider.runtime.inputs.stores import InputStores
from tony_provider.runtime.most_bytes import APPLICATION
from tony_provider.runtime.outputs.output_place import OutputPlace
from tony_provider.runtime.outputs.publication import clear_away
from tony_provider.runtime.storage import StorageNotFound, StorageTooLarge, read_whole, uris
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.leftovers import remove_leftovers

log = logging.getLogger(__name__)


def clean_up(storage: Storage, application_dir: str) -> None:
    """Remove what an application that has ended no longer needs; its results stay. Idempotent. Raises StorageError."""
    clear_outputs(storage, application_dir)
    storage.remove(uris.join(application_dir, contract.LAUNCH_DIR), recursive=True)
    remove_leftovers(storage, application_dir, without=[contract.MODEL_DIR, contract.EXPORTS_DIR])
    exports = uris.join(application_dir, contract.EXPORTS_DIR)
    remove_leftovers(storage, exports, without=_whole_exports(storage, exports))


def clear_outputs(storage: Storage, application_dir: str) -> None:
    """Remove what its tasks have left beside the paths of its outputs. Raises StorageError.

    Of the job's own store, and of others as far as they can be reached from here.
    """
    about = uris.join(application_dir, contract.LAUNCH_DIR, contract.APPLICATION_FILE)
    try:
        description = load_json(read_whole(storage, about, APPLICATION), ApplicationDescription)
    except StorageNotFound:
        return  # it was cleaned up before
    except (CodecError, StorageTooLarge) as error:
        log.warning("%s cannot be read, so that nothing is removed beside its outputs: %s", about, error)
        return
    # The job's programs can write that file: what it is called, and whose disk is meant, is not theirs to say.
    application_id, local = uris.name(application_dir), uris.scheme(application_dir) == "file"
    stores = InputStores(storage, application_dir)
    try:
        for spec in description.job.outputs.values():
            if uris.scheme(spec.path) == "file" and not local:
                continue  # a directory of the nodes
            try:
                clear_away(stores.of(spec.path), OutputPlace(spec.path, application_id))
            except Exception:  # the drivers of other stores raise whatever they like
                log.warning("what is left beside %s could not be removed", spec.path, exc_info=True)
    finally:
        stores.close()


def _whole_exports(storage: Storage, uri: str) -> list[str]:
    """Their names: what is in them is the program's."""
    try:
        found = storage.list(uri)
    except StorageNotFound:
        return []
    return [status.name for status in found if contract.step_of_export(status.name) is not None]
