"""The frame of every page of ours: whole in one answer, with its style and script in it."""

from __future__ import annotations

import base64
import hashlib
import pkgutil
from collections.abc import Mapping
from typing import Optional

from tony_provider.runtime.am.web.http_messages import HttpResponse
from tony_provider.runtime.am.web.page.html import Html, element, join

HTML = "text/html; charset=utf-8"


class Document:
    """An HTML page without its content: the style, and the script of a page that has one, by their file names."""

    def __init__(self, style: str = "page.css", script: str = "") -> None:
        self._style, self._script = _file(style), _file(script) if script else ""
        # Nothing but what is in the page is run or loaded, and nobody else is spoken to.
        policy = (
            f"default-src 'none'; style-src {_hash(self._style)}; script-src {_hash(self._script)}; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        self._headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}

    def response(
        self,
        status: int,
        title: str,
        *children: Html,
        head: Optional[Html] = None,
        headers: Optional[Mapping[str, str]] = None,
        **attributes: str,
    ) -> HttpResponse:
        """The page with this content. ``children`` and ``attributes`` are those of its body."""
        start = element(
            "head",
            element("meta", charset="utf-8"),
            element("title", title),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("link", rel="icon", href="data:,"),
            head,
            element("style", Html(self._style)),
        )
        script = element("script", Html(self._script)) if self._script else None
        body = element("body", *children, script, **attributes)
        whole = join(Html("<!DOCTYPE html>\n"), element("html", start, body, lang="en"), "\n")
        return HttpResponse(status, HTML, whole.encode("utf-8", "replace"), {**self._headers, **(headers or {})})


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _file(name: str) -> str:
    data = pkgutil.get_data(__package__, name)
    assert data is not None  # noqa: S101 - it lies beside us in the archive
    return data.decode()
