"""The plugin: what Airflow takes from a plugin only, and loads in all of its processes.

Named by an entry point of its own: of plugins in the provider's data Airflow's workers know nothing, unless ``[core]
lazy_discover_providers`` is off.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.providers.common.compat.sdk import AirflowPlugin

from tony_provider.compat import PORTAL
from tony_provider.macros import newest_model, quote, run_date

PREFIX = "/tony"  # below it: the portal's API and its pages' files


class TonyPlugin(AirflowPlugin):
    """Airflow's plugin ``tony``: gives templates the macros ``macros.tony.…``, and the API server the portal."""

    name = "tony"
    macros = [newest_model, quote, run_date]  # noqa: RUF012 - Airflow's form

    @cached_property
    def react_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The portal's pages, whose addresses name the version of their files."""
        if not PORTAL.is_here:
            return []
        from tony_provider.portal.pages import portal_pages

        return portal_pages()

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The portal, made where it is asked for: in the API server alone."""
        if not PORTAL.is_here:
            return []
        from tony_provider.portal.api import portal_app

        return [{"app": portal_app(), "url_prefix": PREFIX, "name": "tony"}]
