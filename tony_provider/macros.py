"""Functions for templates: ``{{ macros.tony.newest_model("digits/models") }}``.

Every process of Airflow imports this module, so it imports modules for clusters only on use.
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
    """Return the URI of the newest published model from an earlier period, or an empty string if no such model exists.

    Use the URI as ``warm_start`` of a training.

    :param models: directory of the published models, as a path below the staging directory, or as a URI of the job's
        store. Each version is a directory ``versions/<anything>``. Its file ``version.json``, which ``publish_model``
        writes, contains at least ``model_dir`` and ``period_end`` (ISO 8601).
    :param before: time. The model's period must have ended before this time; default: the end of this run's period.

    Raises ClusterError and StorageError. Raises ValueError if a ``version.json`` is invalid. Raises UndatedRun if
    ``before`` is not given, and the run is for a partition without a date.
    """
    from tony_provider.cluster.records.summary import models_directory, newest_model_before
    from tony_provider.hooks.tony import TonyHook

    end = before if before is not None else run_dates.period_end(context["dag_run"])
    with TonyHook(tony_conn_id, proxy_user) as hook:
        return newest_model_before(hook.storage(), models_directory(hook.layout.root, models), end)


@pass_context
def run_date(context: Context) -> datetime:
    """Return the DAG run's date, as the portal and notifications show it: ``{{ macros.tony.run_date() | ds }}``.

    Raises UndatedRun if the run is for a partition without a date.
    """
    return run_dates.run_date(context["dag_run"])


def quote(value: object) -> str:
    """Quote a value, so that a shell command reads it as a single word: ``--day {{ macros.tony.quote(params.day) }}``.

    Use this function in a job's ``command``, which /bin/sh executes. Without quotes, a value such as ``1; id`` would
    run a second command. Do not put the call inside other quotes.

    Raises ValueError if the value contains a NUL character, because commands cannot contain this character.
    """
    text = str(value)
    if "\0" in text:
        raise ValueError(f"macros.tony.quote: no command can hold a NUL character (got {shown(text)})")
    return shlex.quote(text)
