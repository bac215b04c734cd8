"""HTML made of Python values: whatever is not Html yet is escaped, so that nothing of a job can be mistaken for it.

Nor is there anything in it that nothing shows, or that turns the direction of the text around it.
"""

from __future__ import annotations

from html import escape
from typing import Union

from tony_provider.runtime.text import printable

_VOID = frozenset({"meta", "link", "br", "hr"})


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = Union[str, int, None]
Attribute = Union[str, int, bool, None]


def join(*children: Child) -> Html:
    """The children one after the other, as HTML; None is nothing."""
    return Html("".join(_escaped(child) for child in children if child is not None))


def element(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An HTML element, such as ``element("td", 5, class_="number")``.

    An attribute that is None or False is left out, True has no value. Underscores of an attribute's name become
    hyphens, and one at its end, for Python's keywords, nothing.
    """
    start = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Html(start) if name in _VOID else Html(f"{start}{join(*children)}</{name}>")


def _escaped(child: Child) -> str:
    return child if isinstance(child, Html) else escape(printable(str(child)))


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(printable(str(value)))}"'
