"""The files of the portal's pages, as they lie in ``static``."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

DIRECTORY = Path(__file__).parent / "static"

# What a machine's own tables say of these is not to be relied on, and a browser runs no script of another type.
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class PortalFiles(StaticFiles):
    """The files, with an ETag each: a browser asks whether its copy is still good, and gets 304."""

    def __init__(self) -> None:
        for ending, kind in _TYPES.items():
            mimetypes.add_type(kind, ending)
        super().__init__(directory=DIRECTORY, check_dir=False)

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response
