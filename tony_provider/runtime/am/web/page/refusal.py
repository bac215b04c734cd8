"""The page that a browser shows for a refused request; programs get the same as JSON."""

from __future__ import annotations

from http import HTTPStatus

from tony_provider.runtime.am.web.http_messages import Head, HttpError, HttpResponse
from tony_provider.runtime.am.web.page.document import Document
from tony_provider.runtime.am.web.page.html import element


def wants_page(head: Head) -> bool:
    """Whether a request comes from a browser, which wants a page."""
    return any("text/html" in value for value in head.values("accept"))


def refusal(error: HttpError) -> HttpResponse:
    """The page for an error."""
    title = HTTPStatus(error.status).phrase
    body = element("main", element("section", element("h1", title), element("p", error.message), id="failure"))
    return Document().response(error.status, title, body, headers=error.headers)
