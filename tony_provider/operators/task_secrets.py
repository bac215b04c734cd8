"""The secrets of a training task: its templates rendered, each value masked in Airflow's log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow.sdk.log import mask_secret

from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.masking import without_masking_warnings
from tony_provider.operators.training_task import TrainingTask
from tony_provider.readable_errors import naming_field
from tony_provider.runtime.text import SHORTEST_SECRET

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


def render_secrets(task: TrainingTask, context: Context) -> dict[str, str]:
    """Return the values by their names, for the task's processes. To be called in every process of the Airflow task.

    Each process masks the values in its own log. Only the texts of the DAG's author are templates: what another task
    returned, in a mapped task, is taken as it is. Raises TonySpecError.
    """
    given = task.secrets or {}
    if not isinstance(given, Mapping):
        raise TonySpecError(f"secrets: must be a mapping of names to values, not {type(given).__name__}")
    with naming_field("secrets"):
        rendered: dict[str, str] = dict(given) if task.has_secret_values else task.render_texts(given, context)
    for name, value in rendered.items():
        if not isinstance(value, str):
            raise TonySpecError(f"secrets.{name}: must be text, not {type(value).__name__}")
        with without_masking_warnings():
            mask_secret(value)
        if 0 < len(value) < SHORTEST_SECRET:
            task.log.warning("secrets.%s is not masked in logs: it has fewer than %d characters", name, SHORTEST_SECRET)
    return rendered
