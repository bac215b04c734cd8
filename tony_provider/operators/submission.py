"""From a task's arguments to a job, and to where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tony_provider.cluster.identity import Identity
from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.spec.merge import merge
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.spec.parse import parse_job
from tony_provider.runtime.spec.problems import SpecError
from tony_provider.runtime.spec.source import load_source

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk import DAG


def job_of(
    job: Mapping[str, Any] | str,
    *,
    default_name: str,
    name: str | None,
    queue: str | None,
    env: Mapping[str, str] | None,
    secrets: Sequence[str],
    queue_timeout: timedelta | float | None,
    overrides: Mapping[str, Any] | str | None,
) -> JobSpec:
    """The operator's arguments laid over the job, ``overrides`` over both. Raises TonySpecError."""
    if env is not None and not isinstance(env, Mapping):
        raise TonySpecError(f"env_vars: must be a mapping of names to values, not {env!r}")
    arguments: dict[str, Any] = {"name": name, "queue": queue, "env": dict(env or {}), "secrets": sorted(secrets)}
    given = {key: value for key, value in arguments.items() if value}
    if queue_timeout is not None:
        # The application master keeps to it too, for jobs that nobody watches, and tells what was missing.
        given["timeouts"] = {"queue": _seconds(queue_timeout)}
    try:
        named = merge({"name": default_name}, load_source(job))
        return parse_job(merge(named, given), overrides=overrides or None)
    except SpecError as error:
        raise TonySpecError(str(error)) from error


def identity_of(hook: TonyHook, context: Context, checkpoint_key: str | None) -> Identity:
    """Of the training that this task is, in all its tries."""
    ti = context["ti"]
    return hook.identity(
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        task_id=ti.task_id,
        map_index=map_index(context),
        checkpoint_key=checkpoint_key or None,
    )


def labels_of(context: Context) -> dict[str, str]:
    """Where the job comes from, for its event log."""
    ti = context["ti"]
    labels = {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "try_number": str(ti.try_number)}
    return labels if map_index(context) < 0 else {**labels, "map_index": str(map_index(context))}


def search_path(dag: DAG) -> list[Path]:
    """Where files that the job names are looked for: beside the DAG, then where its templates are."""
    further = dag.template_searchpath or []
    return [Path(dag.folder), *map(Path, [further] if isinstance(further, str) else further)]


def map_index(context: Context) -> int:
    """-1: the task is not mapped."""
    index = context["ti"].map_index
    return -1 if index is None else index


def _seconds(time_span: timedelta | float) -> float:
    return time_span.total_seconds() if isinstance(time_span, timedelta) else time_span
