"""Serve the static files of the portal with versioned URLs, and list the pages that it adds to Airflow's UI."""

from __future__ import annotations

import hashlib
import mimetypes
from functools import cache
from pathlib import Path
from typing import Any

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from tony_provider.links.job_links import PORTAL_ROUTE

DIRECTORY = Path(__file__).parent / "static"

_YEAR = 31_536_000  # seconds

# Set here because a machine's own MIME tables may be wrong, and browsers refuse scripts with another type.
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@cache
def version() -> str:
    """Return a short hash of all static files, computed at the first call."""
    found = hashlib.sha256()
    for file in sorted(each for each in DIRECTORY.rglob("*") if each.is_file()):
        found.update(f"{file.relative_to(DIRECTORY).as_posix()}\n".encode() + file.read_bytes())
    return found.hexdigest()[:12]


class PortalFiles(StaticFiles):
    """The static files, under any ``version`` in the URL, because an open page may be older than the server.

    If the URL has the server's own version, browsers cache the file for a year. Otherwise they revalidate it by ETag.
    """

    def __init__(self) -> None:
        for ending, kind in _TYPES.items():
            mimetypes.add_type(kind, ending)
        super().__init__(directory=DIRECTORY, check_dir=False)

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        named = scope["path_params"].get("version")
        response.headers["Cache-Control"] = f"public, max-age={_YEAR}, immutable" if named == version() else "no-cache"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


def _page(name: str, destination: str, route: str, module: str) -> dict[str, Any]:
    """Return a page for Airflow: ``name`` is the label, and ``module`` the script that Airflow's UI imports."""
    files = f"tony/static/version-{version()}"  # relative to Airflow's base URL, which a proxy may change
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
