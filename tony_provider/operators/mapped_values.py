"""The values of a mapped task that other tasks returned, which must not be rendered as templates.

Airflow itself leaves out those of ``expand``, and renders those of ``expand_kwargs``. Every parse of a DAG file loads
this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


def returned_values(task: Any, names: Sequence[str], context: Context) -> Iterator[object]:
    """Yield the values of these arguments of a task that ``expand_kwargs`` took from what another task returned.

    Values that the DAG's author wrote, also in a list of ``expand_kwargs``, are left out.
    """
    dag = context.get("dag")
    mapped = dag.task_dict.get(task.task_id) if dag is not None else None
    own = getattr(mapped, "partial_kwargs", {})
    if _is_returned(getattr(mapped, "expand_input", None), context):
        yield from (getattr(task, name, None) for name in names if name not in own)
    if _is_returned(getattr(mapped, "op_kwargs_expand_input", None), context):
        given = own.get("op_kwargs") or {}
        yield from (value for name, value in task.op_kwargs.items() if name not in given)


def _is_returned(expand_input: Any, context: Context) -> bool:
    """Return whether this is ``expand_kwargs``, and the mapping of this instance is what another task returned."""
    given = getattr(expand_input, "value", {})
    if isinstance(given, Mapping):
        return False  # none, or that of ``expand``
    index: Any = context["ti"].map_index
    return not (isinstance(given, Sequence) and isinstance(given[index], Mapping))
