"""Check the places in a job's status: its model, export, checkpoint and inputs.

Readers of a status use the places that it names. For example, the next task takes the model. A job can forge the
messages of its executors and the files of its application. So the application master checks the status that it reports,
and Airflow's side checks the status that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.errors import StorageInvalidPath

_SHOWN = 300  # characters of a job's text in a message


@attrs.frozen
class ForeignPlace:
    """A place in a job's status that is not the job's own."""

    key: str  # of the status, such as model_dir
    value: str
    directory: str  # URI of the directory below which the place should lie

    def __str__(self) -> str:
        return f"{self.key[:_SHOWN]}: {self.value[:_SHOWN]!a} does not lie below {self.directory}"


def is_below(uri: str, directory: str) -> bool:
    """Return whether a URI in normal form names a place below a directory.

    Return False for URIs with ``..``, ``//``, a trailing slash or percent-encoding, because programs interpret these
    differently.
    """
    try:
        place, above = uris.parse(uri), uris.parse(directory)
    except StorageInvalidPath:
        return False
    prefix = f"{above.path.rstrip('/')}/"
    is_same_store = (place.scheme, place.authority) == (above.scheme, above.authority)
    rest = place.path[len(prefix) :]
    return is_same_store and place.path.startswith(prefix) and str(place) == uri and "%" not in rest


def foreign_places(status: JobStatus, application_dir: str) -> list[ForeignPlace]:
    """Return the places in a status that do not lie below the directories of the application or of its training.

    Outputs are not checked here, because they lie where the job says.
    """
    return [
        ForeignPlace(key, value, directory)
        for key, value, directory in _places(status, application_dir)
        if value and not is_below(value, directory)
    ]


def without_foreign_places(status: JobStatus, application_dir: str) -> JobStatus:
    """Return the status without places that are not the job's own, and with a warning for each such place."""
    foreign = foreign_places(status, application_dir)
    if not foreign:
        return status
    keys = {each.key for each in foreign}
    return attrs.evolve(
        status,
        model_dir=None if "model_dir" in keys else status.model_dir,
        export=None if "export.uri" in keys else status.export,
        checkpoint=None if "checkpoint.uri" in keys else status.checkpoint,
        resumed=None if "resumed.uri" in keys else status.resumed,
        inputs=[each for each in status.inputs if is_below(each.listing, application_dir)],
        warnings=[*status.warnings, *(f"left out of the job's status: {each}" for each in foreign)],
    )


def _places(status: JobStatus, application_dir: str) -> Iterator[tuple[str, str, str]]:
    """Yield the key of each place, the place, and the directory below which it should lie. A place may be empty."""
    training_dir = uris.parent(uris.parent(application_dir))
    yield "model_dir", status.model_dir or "", application_dir
    yield "export.uri", status.export.uri if status.export else "", application_dir
    yield "checkpoint.uri", status.checkpoint.uri if status.checkpoint else "", training_dir
    # With ``resume_from`` this checkpoint is another training's. Readers of the status do not open it.
    store = attrs.evolve(uris.parse(application_dir), path="/")
    yield "resumed.uri", status.resumed.uri if status.resumed else "", str(store)
    for each in status.inputs:
        yield f"inputs.{each.name}.listing", each.listing, application_dir
