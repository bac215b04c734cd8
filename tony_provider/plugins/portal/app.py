"""The FastAPI app of the portal, which Airflow's API server mounts under ``/tony``."""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.responses import Response

from tony_provider.plugins.portal.api import PlainJson, router
from tony_provider.plugins.portal.read_ahead import reading_ahead
from tony_provider.plugins.portal.static_files import PortalFiles
from tony_provider.plugins.portal.store import OutOfReach


def portal_app() -> FastAPI:
    """A new one. Its description is not served: that would ask nobody who they are."""
    app = FastAPI(title="TonY portal", openapi_url=None, docs_url=None, redoc_url=None, lifespan=reading_ahead)
    app.include_router(router, prefix="/api")
    files = PortalFiles()
    app.mount("/static/version-{version}", files)
    app.mount("/static", files)
    app.add_exception_handler(OutOfReach, _out_of_reach)
    return app


async def _out_of_reach(_: Request, error: Exception) -> Response:
    return PlainJson({"reason": str(error)}, status_code=503)
