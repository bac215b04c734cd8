"""What sends a request: a program that means it, or a browser, which obeys whatever page it shows.

All pages behind one ResourceManager's proxy are of one origin, the master's page and that of anybody's application, and
a browser sends the name of whoever looks at one of them with every request of its script. Nothing that our page could
be given, such as a token, would be kept from such a script: it can read our page as that person. So no order is taken
from a browser at all; no page of ours sends any.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Optional

from tony_provider.runtime.am.web.http_messages import JSON, Head, HttpError

# Browsers send each of the first ones with a PUT, whatever a script says, and YARN's proxy passes it on; programs send
# none. The rest only comes from browsers that are not behind the proxy.
_OF_BROWSERS = ("origin", "accept-language", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest", "referer")
_NAME_OF_BROWSERS = "Mozilla/"  # so all of them begin


def check_json(head: Head) -> None:
    """Raises HttpError for a body that is not said to be JSON, as no form of a page can send it."""
    kinds = [value.partition(";")[0].strip().lower() for value in head.values("content-type")]
    if kinds != [JSON]:
        message = f"send JSON, with the header Content-Type: {JSON}"
        raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)


def check_no_browser(head: Head) -> None:
    """Raises HttpError for an order that a browser sends."""
    if (sign := _sign_of_browser(head)) is not None:
        raise HttpError(
            HTTPStatus.FORBIDDEN,
            f"orders are not taken from a browser ({sign}), since any page of this ResourceManager could send them "
            "with your name: use airflow tony, Airflow's pages, or a program such as curl",
        )


def _sign_of_browser(head: Head) -> Optional[str]:
    for name in _OF_BROWSERS:
        if head.values(name):
            return f"the header {name.title()}"
    if any(value.startswith(_NAME_OF_BROWSERS) for value in head.values("user-agent")):
        return "its User-Agent"
    return None
