"""The plugin: what Airflow takes from a plugin only, and loads in all of its processes.

Named by an entry point of its own: of plugins in the provider's data Airflow's workers know nothing, unless ``[core]
lazy_discover_providers`` is off.
"""

from __future__ import annotations

from airflow.providers.common.compat.sdk import AirflowPlugin

from tony_provider.macros import newest_model


class TonyPlugin(AirflowPlugin):
    """Airflow's plugin ``tony``: gives templates the macros ``macros.tony.…``."""

    name = "tony"
    macros = [newest_model]  # noqa: RUF012 - Airflow's form
