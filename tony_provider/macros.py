"""Functions for templates: ``{{ macros.tony.newest_model("digits/models") }}``.

Every process of Airflow imports this module: it loads what it needs of a cluster where it is called.
"""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import TYPE_CHECKING

from jinja2 import pass_context

from tony_provider import run_dates
from tony_provider.runtime.jobspec.problems import shown

if TYPE_CHECKING:
    from jinja2.runtime import Context


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
    :param before: models of periods that ended earlier than this; default: the end of this run's period.

    Raises ClusterError, StorageError, ValueError for a version.json that says something else, and UndatedRun if the
    run is for a partition without a date and ``before`` is not given.
    """
    from tony_provider.cluster.records.published_models import newest_model_before
    from tony_provider.hooks.tony import TonyHook
    from tony_provider.runtime.storage import uris

    end = before if before is not None else run_dates.period_end(context["dag_run"])
    with TonyHook(tony_conn_id, proxy_user) as hook:
        directory = models if "://" in models else uris.join(hook.layout.root, models)
        return newest_model_before(hook.storage(), directory, end)


@pass_context
def run_date(context: Context) -> datetime:
    """Return the date that the run is for, as the portal and mails name it: ``{{ macros.tony.run_date() | ds }}``.

    Raises UndatedRun if the run is for a partition without a date.
    """
    return run_dates.run_date(context["dag_run"])


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
