"""Airflow plugin with the portal and the template macros, loaded in all Airflow processes.

It has its own entry point: workers ignore plugins in the provider's metadata, unless ``[core] lazy_discover_providers``
is off.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.providers.common.compat.sdk import AirflowPlugin

from tony_provider.compat import PORTAL
from tony_provider.macros import newest_model, quote, run_date

PREFIX = "/tony"  # URL prefix of the portal's API and static files


class TonyPlugin(AirflowPlugin):
    """Airflow plugin ``tony``: adds the template macros ``macros.tony.…``, and the portal to the API server."""

    name = "tony"
    macros = [newest_model, quote, run_date]  # noqa: RUF012 - Airflow's form

    @cached_property
    def react_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The portal's pages. Their URLs contain the version of the static files."""
        if not PORTAL.is_here:
            return []
        from tony_provider.portal.pages import portal_pages

        return portal_pages()

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The portal's API. Only the API server reads this property, so only it creates the app."""
        if not PORTAL.is_here:
            return []
        from tony_provider.portal.api import portal_app

        return [{"app": portal_app(), "url_prefix": PREFIX, "name": "tony"}]
