"""Functions for templates: ``{{ macros.tony.newest_model("digits/models") }}``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs
from jinja2 import pass_context

from tony_provider.cluster.published import VERSION_FILE, VERSIONS_DIR
from tony_provider.runtime.foreign_json import read_json
from tony_provider.runtime.most_bytes import RECORD
from tony_provider.runtime.spec.problems import shown
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageNotFound
from tony_provider.runtime.storage.helpers import read_whole

if TYPE_CHECKING:
    from jinja2.runtime import Context


@attrs.frozen
class Version:
    """One published model: a directory with a VERSION_FILE, which is written when the model is complete."""

    model_dir: str  # URI
    period_end: datetime  # of what it was trained on
    number: str  # its directory's name


@pass_context
def newest_model(
    context: Context,
    models: str,
    before: datetime | str | None = None,
    tony_conn_id: str = "tony_default",
    proxy_user: str | None = None,
) -> str:
    """URI of the newest published model of an earlier period, for ``warm_start``; empty when there is none.

    :param models: where models are published: a URI of the job's store, or a path below its staging directory. Each
        version is a directory ``versions/<anything>`` with a ``version.json`` that holds at least ``model_dir`` and
        ``period_end`` (ISO 8601), as the example DAGs write it.
    :param before: models of periods that ended earlier than this; default: the end of this run's data interval, else
        its ``run_after``.

    Raises ClusterError, StorageError, and ValueError for a version.json that says something else.
    """
    from tony_provider.hooks.tony import TonyHook  # here, since every process of Airflow imports this module

    end = _moment(before if before is not None else _period_end(context))
    with TonyHook(tony_conn_id, proxy_user) as hook:
        directory = models if "://" in models else uris.join(hook.layout.root, models)
        earlier = (version for version in _versions(hook.storage(), directory) if version.period_end < end)
        newest_first = sorted(earlier, key=_age, reverse=True)
        return next((each.model_dir for each in newest_first if hook.storage().exists(each.model_dir)), "")


def quote(value: object) -> str:
    """A value as one word of a command, whatever is in it: ``--day {{ macros.tony.quote(params.day) }}``.

    For ``command`` of a job, which /bin/sh reads: without it a value such as ``1; id`` ends the command, and begins
    another. Stands by itself, outside of other quotes.

    Raises ValueError for text that no command can hold: a NUL character.
    """
    text = str(value)
    if "\0" in text:
        raise ValueError(f"macros.tony.quote: no command can hold a NUL character (got {shown(text)})")
    return shlex.quote(text)


def _period_end(context: Context) -> Any:
    run = context["dag_run"]
    return run.data_interval_end or run.run_after


def _versions(storage: Storage, models: str) -> Iterator[Version]:
    try:
        directories = storage.list(uris.join(models, VERSIONS_DIR))
    except StorageNotFound:
        return
    for directory in directories:
        file = uris.join(directory.path, VERSION_FILE)
        try:
            data = read_whole(storage, file, RECORD)
        except StorageNotFound:
            continue  # still being published
        try:
            about = read_json(data)
            yield Version(about["model_dir"], _moment(about["period_end"]), directory.name)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file} should hold model_dir and period_end: {error!r}") from error


def _moment(value: datetime | str) -> datetime:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _age(version: Version) -> tuple[datetime, int, str]:
    """Of one period the version with the highest number is the newest: 10 after 9."""
    is_number = version.number.isdecimal() and len(version.number) < 20
    return version.period_end, int(version.number) if is_number else -1, version.number
