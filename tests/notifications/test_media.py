"""Texts of jobs in messages: each medium shows them as they are, and none of them becomes more than a text."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import DAG
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from tests.notifications.recording import RecordingNotifier
from tests.notifications.test_news import Left, dag, left, of_task
from tests.operators.statuses import status
from tony_provider.notifications.message import Medium, TrainingMessage, escaped, for_medium, medium_of
from tony_provider.notifications.tony import TonyNotifier
from tony_provider.runtime.protocol.status import Failure, FailureKind

__all__ = ["dag", "left"]

HOSTILE = (
    "<!channel> <http://evil.example|your bank> & <script>alert(1)</script> [bank](http://evil.example) @everyone "
    "{{ 7 * 7 }} {% raw %}"
)
FAILURE = Failure(FailureKind.USER, f"worker:1 failed: {HOSTILE}\n{HOSTILE}", task="worker:1")
WARNED = status("FAILED", failure=FAILURE, warnings=[HOSTILE], metrics={HOSTILE: 0.5})
SLACK = type("SlackLike", (RecordingNotifier,), {"__module__": "airflow.providers.slack.notifications.slack"})
MAIL = type("MailLike", (RecordingNotifier,), {"__module__": "airflow.providers.smtp.notifications.smtp"})
DISCORD = type("DiscordLike", (RecordingNotifier,), {"__module__": "airflow.providers.discord.notifications.discord"})
WHOLE = "{{ tony.message }} {{ tony.cause }} {{ tony.tail }} {{ tony.warnings }} {{ tony.metrics }}"


def told(notifier: type[RecordingNotifier], context: Any, text: str = WHOLE, **options: Any) -> str:
    recording = notifier(text=text)
    TonyNotifier(recording, **options)(context)
    return recording.told[0]


def test_slack_gets_neither_mentions_nor_links_of_a_job(left: Left, dag: DAG) -> None:
    left.leave(WARNED)
    for said in (told(SLACK, of_task(dag)), told(RecordingNotifier, of_task(dag), medium="slack")):
        assert not re.search(r"[<>]", said)
        assert "&lt;!channel&gt; &lt;http://evil.example|your bank&gt; &amp; " in said


def test_mails_get_no_markup_of_a_job(left: Left, dag: DAG) -> None:
    left.leave(WARNED)
    said = told(MAIL, of_task(dag))
    assert "<script" not in said
    assert "&lt;script&gt;" in said
    assert told(MAIL, of_task(dag), "{{ tony.cause | e }}") == told(MAIL, of_task(dag), "{{ tony.cause }}")
    whole = told(MAIL, of_task(dag), "{{ tony.html }}")
    assert ("<script" in whole, "&amp;lt;" in whole, whole.startswith("<p><b>")) == (False, False, True)


def test_chats_get_neither_mentions_nor_disguised_links_of_a_job(left: Left, dag: DAG) -> None:
    left.leave(WARNED)
    said = told(DISCORD, of_task(dag))
    assert "@everyone" not in said
    assert "\\[bank\\]\\(http://evil.example\\)" in said


@pytest.mark.parametrize("notifier", [RecordingNotifier, SLACK, MAIL, DISCORD])
def test_texts_of_a_job_are_never_rendered(left: Left, dag: DAG, notifier: type[RecordingNotifier]) -> None:
    left.leave(WARNED)
    said = told(notifier, of_task(dag)).replace("\\", "")
    assert ("{{ 7 * 7 }} {% raw %}" in said, "49" in said) == (True, False)


def test_the_medium_is_that_of_the_notifiers_provider() -> None:
    assert medium_of(SmtpNotifier(to="team@example.com")) is Medium.HTML
    assert medium_of(type("Own", (SLACK,), {})()) is Medium.SLACK
    assert medium_of(RecordingNotifier()) is medium_of(print) is Medium.TEXT
    with pytest.raises(ValueError, match="medium is 'teams'; write one of text, slack, html, markdown"):
        TonyNotifier(print, medium="teams")


def test_plain_text_stays_as_it_is(left: Left, dag: DAG) -> None:
    left.leave(WARNED)
    assert HOSTILE in told(RecordingNotifier, of_task(dag), "{{ tony.cause }}")


def test_a_body_of_json_by_the_documented_recipe_stays_whole(left: Left, dag: DAG) -> None:
    left.leave(WARNED)
    body = told(RecordingNotifier, of_task(dag), '{{ {"text": tony.message} | tojson }}')
    assert HOSTILE in json.loads(body)["text"]


@given(st.text(max_size=60))
def test_a_text_is_shown_as_it_is(text: str) -> None:
    assert escaped(text, Medium.SLACK).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") == text
    assert Markup(escaped(text, Medium.HTML)).unescape() == Markup(html.escape(text)).unescape()
    marks = re.sub(r"\\.", "", escaped(text, Medium.MARKDOWN), flags=re.DOTALL)
    assert not re.search(r"[\[\]()<>]|@(?!\u200b)", marks)


@given(st.text(max_size=60))
def test_all_fields_are_escaped(text: str) -> None:
    news = TrainingMessage(title=text, verdict="failed", cause=text, tail=text, warnings=[text], metrics={text: text})
    for medium in (Medium.SLACK, Medium.HTML):
        shown = for_medium(news, medium)
        said = "".join([shown.title, shown.cause, shown.tail, *shown.warnings, *shown.metrics, shown.message])
        assert not re.search(r"[<>]", said)
