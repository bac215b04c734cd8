"""The message about a training, named ``tony`` in a notifier's templates, and the escaping of its texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from html import escape as _escaped
from typing import Any

import attrs
from markupsafe import Markup, escape

from tony_provider.runtime.common.quantities import number, steps
from tony_provider.runtime.common.text import printable

MOST_METRICS = 30
MOST_WARNINGS = 5
LONGEST_LINE = 300  # characters of any line, also of the task's last lines
LONGEST_TAIL = 4000

Metrics = dict[str, float | str]  # numbers, or "NaN", "Infinity" and "-Infinity"


@attrs.frozen(kw_only=True)
class TrainingMessage:
    """All known data of a training at a callback, bounded in length. Texts are plain, except ``html``."""

    title: str  # one line: subject, date and result
    verdict: str  # succeeded, failed, killed, running or unknown
    cause: str = ""  # one line about the failure, with the task that failed first; empty without a failure
    problems: str = ""  # all problems of a job that was refused before it started, one a line, never cut
    tail: str = ""  # the last lines that the failed task printed
    tail_of: str = ""  # the failed task, such as worker:0
    metrics: Metrics = attrs.field(factory=dict)
    former_metrics: Metrics | None = None  # metrics of the last earlier run that succeeded; None if unknown
    former_run: str = ""  # ID of that run; empty if unknown
    step: int | None = None
    total_steps: int | None = None
    warnings: list[str] = attrs.field(factory=list)
    links: dict[str, str] = attrs.field(factory=dict)  # addresses by their names
    missing: list[str] = attrs.field(factory=list)  # unknown data, with reasons
    dag_id: str = ""
    run_id: str = ""
    task_id: str = ""
    map_index: int = -1  # -1 if not mapped
    try_number: int | None = None
    application_id: str | None = None

    @property
    def message(self) -> str:
        """The whole message, as plain text."""
        parts = [self.title]
        if self.cause:
            parts.append(f"Cause: {self.cause}")
        if self.problems:
            parts.append(self.problems)
        if self.tail:
            parts.append("\n".join([f"{self._tail_title}:", *(f"    {line}" for line in self.tail.splitlines())]))
        parts += [f"{name}: {text}" for name, text in self._facts()]
        parts += [f"{name}: {', '.join(each)}" for name, *each in self._metric_rows()]
        parts += [f"{name}: {address}" for name, address in self.links.items()]
        return "\n".join([*parts, *(f"Not known: {each}" for each in self.missing)])

    @property
    def html(self) -> str:
        """The whole message as HTML, without styles."""
        parts = [f"<p><b>{_escaped(self.title)}</b></p>"]
        if self.cause:
            parts.append(f"<p>Cause: {_escaped(self.cause)}</p>")
        if self.problems:
            parts.append(f"<pre>{_escaped(self.problems)}</pre>")
        if self.tail:
            parts.append(f"<p>{_escaped(self._tail_title)}:</p><pre>{_escaped(self.tail)}</pre>")
        parts += [f"<p>{name}: {_escaped(text)}</p>" for name, text in self._facts()]
        if rows := self._metric_rows():
            cells = ("".join(f"<td>{_escaped(cell)}</td>" for cell in row) for row in rows)
            parts.append(f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>")
        if self.links:
            parts.append(f"<p>{' | '.join(_link(name, address) for name, address in self.links.items())}</p>")
        parts += [f"<p>Not known: {_escaped(each)}</p>" for each in self.missing]
        return "\n".join(parts)

    @property
    def _tail_title(self) -> str:
        return f"Last lines of {self.tail_of}" if self.tail_of else "Last lines"

    def _facts(self) -> list[tuple[str, str]]:
        facts = [("Step", steps(self.step, self.total_steps))] if self.step is not None else []
        facts += [("Warning", each) for each in self.warnings]
        return [*facts, ("Application", self.application_id)] if self.application_id else facts

    def _metric_rows(self) -> list[tuple[str, str, str]]:
        """Return for each metric its name, its value, and its value in the earlier run."""
        rows = []
        for name, value in self.metrics.items():
            before = "before: not known"
            if self.former_metrics is not None and name in self.former_metrics:
                before = f"before: {_number(self.former_metrics[name])}"
            rows.append((name, _number(value), before))
        return rows


def line(text: str) -> str:
    """Return the text on a single line, of bounded length."""
    said = " ".join(cleaned(text).split())
    return said if len(said) <= LONGEST_LINE else f"{said[: LONGEST_LINE - 1]}…"


def last_lines(text: str, count: int) -> str:
    """Return the last ``count`` nonempty lines of a text, of bounded length."""
    lines = [each.rstrip() for each in cleaned(text).splitlines() if each.strip()]
    cut = [each if len(each) <= LONGEST_LINE else f"{each[: LONGEST_LINE - 1]}…" for each in lines[-count:]]
    while len(cut) > 1 and sum(map(len, cut)) > LONGEST_TAIL:
        del cut[0]
    return "\n".join(cut)


def cleaned(text: str) -> str:
    """Return the text without terminal colours and other control characters."""
    return printable(text.replace("\r\n", "\n").replace("\r", "\n"))


def _number(value: float | str) -> str:
    return line(value) if isinstance(value, str) else number(value)


def _link(name: str, address: str) -> str:
    if not address.startswith(("http://", "https://")):
        return f"{_escaped(name)}: {_escaped(address)}"
    return f'<a href="{_escaped(address)}">{_escaped(name)}</a>'


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


def for_medium(news: TrainingMessage, medium: Medium) -> TrainingMessage:
    """Return the message with all texts escaped, including names of metrics."""
    if medium is Medium.TEXT:
        return news
    fields = {field.name: _media_escaped(getattr(news, field.name), medium) for field in attrs.fields(TrainingMessage)}
    return EscapedMessage(**fields, plain=news, medium=medium)


@attrs.frozen(kw_only=True)
class EscapedMessage(TrainingMessage):
    """The message with its texts escaped for one medium; ``html`` is the same for every medium."""

    plain: TrainingMessage = attrs.field(repr=False)
    medium: Medium

    @property
    def message(self) -> str:
        """The whole message, as escaped text."""
        return escaped(self.plain.message, self.medium)

    @property
    def html(self) -> str:
        """The whole message, as HTML without styles."""
        return self.plain.html


def _media_escaped(value: Any, medium: Medium) -> Any:
    if isinstance(value, str):
        return escaped(value, medium)
    if isinstance(value, list):
        return [_media_escaped(each, medium) for each in value]
    if isinstance(value, Mapping):
        return {_media_escaped(name, medium): _media_escaped(each, medium) for name, each in value.items()}
    return value


def _slack(text: str) -> str:
    return _escaped(text, quote=False)


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
