"""Find published models: directories ``versions/<any>/version.json`` below a models directory.

A job writes ``version.json`` after it has written the model, so a directory without this file is incomplete.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import attrs

from tony_provider.runtime.common.bounds import RECORD_LIMIT, read_json
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage, read_whole
from tony_provider.runtime.storage.errors import StorageNotFound

VERSIONS_DIR = "versions"
VERSION_FILE = "version.json"  # holds at least ``model_dir`` and ``period_end``

_SHOWN = 300  # characters of a version.json that an error shows


@attrs.frozen
class Version:
    """A published model. Its VERSION_FILE exists only if the model is complete."""

    model_dir: str  # URI
    period_end: datetime  # end of the period that the model was trained on
    number: str  # name of its directory


def newest_model_before(storage: Storage, models: str, end: datetime | str) -> str:
    """Return the URI of the existing model with the newest period that ended before ``end``, or "" if there is none.

    Raises StorageError. Raises ValueError if a version.json is invalid or names a model on another store, or if a date
    is not ISO 8601.
    """
    moment = _moment(end)
    earlier = (version for version in _versions(storage, models) if version.period_end < moment)
    newest_first = sorted(earlier, key=_age, reverse=True)
    return next((each.model_dir for each in newest_first if storage.exists(each.model_dir)), "")


def _versions(storage: Storage, models: str) -> Iterator[Version]:
    try:
        directories = storage.list(uris.join(models, VERSIONS_DIR))
    except StorageNotFound:
        return
    for directory in directories:
        file = uris.join(directory.path, VERSION_FILE)
        try:
            data = read_whole(storage, file, RECORD_LIMIT)
        except StorageNotFound:
            continue  # still being published
        try:
            about = read_json(data)
            version = Version(about["model_dir"], _moment(about["period_end"]), directory.name)
            # Jobs may write this file, and a template may put the model into `files`, where a path names a local file.
            is_of_store = "://" in version.model_dir and uris.scheme(version.model_dir) == uris.scheme(models)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file} should hold model_dir and period_end: {error!r}") from error
        if not is_of_store:
            raise ValueError(
                f"{file}: model_dir: {version.model_dir[:_SHOWN]!a} is not a URI of the store that the models are "
                f"published on ({uris.scheme(models)}://…)"
            )
        yield version


def _moment(value: datetime | str) -> datetime:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _age(version: Version) -> tuple[datetime, int, str]:
    """Return a sort key. If two versions have the same period, the higher number is newer: 10 after 9."""
    is_number = version.number.isdecimal() and len(version.number) < 20
    return version.period_end, int(version.number) if is_number else -1, version.number
