"""The portal's pages as plugins name them: one in the navigation, a tab on each DAG and each task instance."""

from __future__ import annotations

from typing import Any

from tony_provider.links.tony import PORTAL_ROUTE

_STATIC = "tony/static"  # relative to Airflow's own address, whatever path a proxy gives it


def _page(name: str, destination: str, route: str, module: str) -> dict[str, Any]:
    """``name`` is what people read; ``module`` the script that Airflow's page imports."""
    return {
        "name": name,
        "destination": destination,
        "url_route": route,
        "bundle_url": f"{_STATIC}/{module}",
        "icon": f"{_STATIC}/icon.svg",
        "icon_dark_mode": f"{_STATIC}/icon_dark.svg",
        "category": "browse",
    }


PAGES = [
    _page("Training jobs", "nav", PORTAL_ROUTE, "nav.js"),
    _page("Trainings", "dag", "trainings", "dag.js"),
    _page("Training", "task_instance", "training", "task_instance.js"),
]
