"""Escape a job's texts for the medium of a notifier, so that they become no mention, link or markup there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import attrs
from markupsafe import Markup, escape

from tony_provider.notifications.job_news import JobNews


class Medium(StrEnum):
    """The markup language of a notifier's messages."""

    TEXT = "text"  # no markup
    SLACK = "slack"  # mrkdwn: <!channel>, <address|text>
    HTML = "html"
    MARKDOWN = "markdown"  # of chats, with @mentions


_OF_PROVIDERS = {
    "airflow.providers.slack.": Medium.SLACK,
    "airflow.providers.smtp.": Medium.HTML,
    "airflow.providers.discord.": Medium.MARKDOWN,
}
_MARKDOWN = re.compile(r"(?P<address>https?://[\w./:?=&%~+-]+)|(?P<mention>@)|(?P<mark>[\\`*_{}\[\]<>()#+!|~-])")


def medium_of(notifier: object) -> Medium:
    """Return the medium of a notifier by its provider; TEXT for a function and for other providers."""
    modules = [f"{cls.__module__}." for cls in type(notifier).__mro__]
    found = (medium for module in modules for start, medium in _OF_PROVIDERS.items() if module.startswith(start))
    return next(found, Medium.TEXT)


def escaped(text: str, medium: Medium) -> str:
    """Return the text, escaped so that the medium shows it unchanged."""
    return _ESCAPES[medium](text)


def for_medium(news: JobNews, medium: Medium) -> JobNews:
    """Return the news with all texts escaped, names of metrics included."""
    if medium is Medium.TEXT:
        return news
    fields = {field.name: _escaped(getattr(news, field.name), medium) for field in attrs.fields(JobNews)}
    return EscapedNews(**fields, plain=news, medium=medium)


@attrs.frozen(kw_only=True)
class EscapedNews(JobNews):
    """The news for one medium; ``html`` is the same for every medium."""

    plain: JobNews = attrs.field(repr=False)
    medium: Medium

    @property
    def message(self) -> str:
        """The whole message, as escaped text."""
        return escaped(self.plain.message, self.medium)

    @property
    def html(self) -> str:
        """The whole message, as HTML without styles."""
        return self.plain.html


def _escaped(value: Any, medium: Medium) -> Any:
    if isinstance(value, str):
        return escaped(value, medium)
    if isinstance(value, list):
        return [_escaped(each, medium) for each in value]
    if isinstance(value, Mapping):
        return {_escaped(name, medium): _escaped(each, medium) for name, each in value.items()}
    return value


def _slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _html(text: str) -> Markup:
    """Return markup, which the filter ``e`` of a template does not escape again."""
    return escape(str(text))


def _markdown(text: str) -> str:
    """Escape Markdown, except in URLs, because a plain URL cannot hide its target."""

    def shown(found: re.Match[str]) -> str:
        if found["address"]:
            return found["address"]
        return "@\u200b" if found["mention"] else f"\\{found['mark']}"

    return _MARKDOWN.sub(shown, text)


_ESCAPES: dict[Medium, Callable[[str], str]] = {
    Medium.TEXT: str,
    Medium.SLACK: _slack,
    Medium.HTML: _html,
    Medium.MARKDOWN: _markdown,
}
