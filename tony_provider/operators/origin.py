"""``resume_from`` and ``warm_start`` as they were rendered, from what people write to what the cluster side knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tony_provider.cluster.identity import Identity
from tony_provider.cluster.lineage_choice import Resume
from tony_provider.cluster.lineage_origin import Origin
from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.submission import map_index
from tony_provider.runtime.spec.reader import suggestion

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_KEYS = ["dag_id", "run_id", "task_id", "map_index", "checkpoint_key"]


def resume_of(given: str) -> Resume:
    """Raises TonySpecError."""
    try:
        return Resume(given)
    except ValueError as error:
        raise TonySpecError(f"resume: {given!r} should be one of {', '.join(Resume)}") from error


def origin_of(
    hook: TonyHook,
    context: Context,
    *,
    resume_from: Mapping[str, Any] | str | None,
    warm_start: str | None,
    checkpoint_key: str | None,
) -> Origin:
    """``checkpoint_key`` is this task's own. Raises TonySpecError."""
    if warm_start is not None and not isinstance(warm_start, str):
        raise TonySpecError(f"warm_start: should be the URI of a model's directory, not {warm_start!r}")
    return Origin(_training(hook, context, resume_from, checkpoint_key), (warm_start or "").strip() or None)


def _training(hook: TonyHook, context: Context, given: Any, checkpoint_key: str | None) -> Identity | str | None:
    if not given:
        return None
    if isinstance(given, str):
        return given.strip() or None
    if not isinstance(given, Mapping):
        raise TonySpecError(f"resume_from: should be a mapping with a run_id, or a lineage's URI, not {given!r}")
    if unknown := sorted(set(given) - set(_KEYS)):
        hint = suggestion(unknown[0], _KEYS)
        raise TonySpecError(f"resume_from: {unknown[0]!r} is not known{hint}; it may hold {', '.join(_KEYS)}")
    if not (run_id := _text(given, "run_id")):
        return None  # a template that found no run
    ti = context["ti"]
    dag_id, task_id = _text(given, "dag_id") or ti.dag_id, _text(given, "task_id") or ti.task_id
    key, index = _text(given, "checkpoint_key"), _index(given)
    if key is not None and index is not None:
        raise TonySpecError("resume_from: map_index and checkpoint_key are both given; keep one of them")
    if key is None and index is None and (dag_id, task_id) == (ti.dag_id, ti.task_id):
        key, index = checkpoint_key or None, map_index(context)
    return hook.identity(
        dag_id=dag_id,
        run_id=run_id,
        task_id=task_id,
        map_index=-1 if index is None else index,
        checkpoint_key=key,
    )


def _text(given: Mapping[str, Any], key: str) -> str | None:
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        raise TonySpecError(f"resume_from.{key}: should be text, not {value!r}")
    return value or None


def _index(given: Mapping[str, Any]) -> int | None:
    value = given.get("map_index")
    if value is None or value == "":
        return None
    try:
        return int(value)  # templates give text
    except (TypeError, ValueError) as error:
        raise TonySpecError(f"resume_from.map_index: should be a whole number, not {value!r}") from error
