"""Summaries that are read as the API server starts."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from tests.portal.conftest import As
from tests.waiting import until
from tony_provider.portal import stored_jobs
from tony_provider.portal.api import portal_app
from tony_provider.portal.stored_jobs import ROW_CACHE, Row, row_of


class Parsing:
    """Counts what is parsed, and can be held up within the first."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.held = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self._row_of = row_of

    def __call__(self, columns: Mapping[str, Any], key: str, value: str) -> Row:
        self.keys.append(f"{columns['dag_id']} {key}")  # several may claim one job
        if _thread() is threading.current_thread() and not self.held.is_set():
            self.held.set()
            assert self.may_go_on.wait(60)
        return self._row_of(columns, key, value)


def _thread() -> threading.Thread | None:
    return next((each for each in threading.enumerate() if each.name == "tony-portal-read-ahead"), None)


@pytest.fixture
def parsing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parsing]:
    parsing = Parsing()
    monkeypatch.setattr(stored_jobs, "row_of", parsing)
    ROW_CACHE.clear()
    yield parsing
    ROW_CACHE.clear()


def listed(client: As) -> list[str]:
    answer = client("alice").get("/tony/api/jobs?limit=500&order=submitted")
    assert answer.status_code == 200, answer.text
    return [row["application_id"] for row in answer.json()["jobs"]]


@pytest.mark.usefixtures("jobs")
def test_after_the_start_the_first_list_parses_nothing(client: As, api_server: FastAPI, parsing: Parsing) -> None:
    expected = listed(client)
    ROW_CACHE.clear()
    parsing.keys.clear()
    with TestClient(api_server):
        until(lambda: _thread() is None, lambda: f"the end of reading ahead; {len(parsing.keys)} are parsed")
        read = list(parsing.keys)
        assert len(read) == len(set(read)) >= len(expected) > 0
        assert listed(client) == expected
        assert parsing.keys == read


@pytest.mark.usefixtures("jobs")
def test_a_list_that_comes_meanwhile_is_whole_and_parsed_once(
    client: As, api_server: FastAPI, parsing: Parsing
) -> None:
    expected = listed(client)
    ROW_CACHE.clear()
    parsing.keys.clear()
    parsing.may_go_on.clear()
    with TestClient(api_server):
        until(parsing.held.is_set, "the first summary")
        assert listed(client) == expected
        parsing.may_go_on.set()
        until(lambda: _thread() is None, "the end of reading ahead")
    twice = {key for key in parsing.keys if parsing.keys.count(key) > 1}
    assert twice <= {parsing.keys[0]}  # what was being parsed when the list was asked for


def test_a_database_without_the_table_is_told_and_the_server_starts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @contextmanager
    def empty_database(scoped: bool) -> Iterator[Session]:
        with Session(create_engine("sqlite://")) as session:
            yield session

    monkeypatch.setattr(stored_jobs, "create_session", empty_database)
    with TestClient(portal_app()) as client:
        until(lambda: "no such table: task_state_store" in caplog.text, lambda: f"a word of it in {caplog.text!r}")
        assert client.get("/static/icon.svg").status_code == 200


def test_reading_ahead_ends_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ROW_CACHE, "read_ahead", lambda: repeat(None))
    with TestClient(portal_app()):
        assert _thread() is not None
    assert _thread() is None
