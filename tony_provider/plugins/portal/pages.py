"""The portal's pages as plugins name them: one in the navigation, a tab on each DAG and each task instance."""

from __future__ import annotations

from typing import Any

from tony_provider.links.tony import PORTAL_ROUTE
from tony_provider.plugins.portal.static_files import version


def _page(name: str, destination: str, route: str, module: str) -> dict[str, Any]:
    """``name`` is what people read; ``module`` the script that Airflow's page imports."""
    files = f"tony/static/version-{version()}"  # relative to Airflow's own address, whatever path a proxy gives it
    return {
        "name": name,
        "destination": destination,
        "url_route": route,
        "bundle_url": f"{files}/{module}",
        "icon": f"{files}/icon.svg",
        "icon_dark_mode": f"{files}/icon_dark.svg",
        "category": "browse",
    }


def portal_pages() -> list[dict[str, Any]]:
    return [
        _page("Training jobs", "nav", PORTAL_ROUTE, "nav.js"),
        _page("Trainings", "dag", "trainings", "dag.js"),
        _page("Training", "task_instance", "training", "task_instance.js"),
    ]
