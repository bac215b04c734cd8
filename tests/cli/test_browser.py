"""How a browser is opened; it is none, but what it would be given and do."""

from __future__ import annotations

import os
import webbrowser

import pytest
import requests

from tony_provider.cli import open_tunnel
from tony_provider.cli.open_tunnel import open_browser

URL = "http://127.0.0.1:41873/lab?token=a-token-4711"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses on command lines of browsers."""
    addresses: list[str] = []
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    return addresses


def followed(address: str) -> str | None:
    """Where it leads to; None: nowhere."""
    with requests.Session() as session:
        session.trust_env = False
        try:
            return session.get(address, allow_redirects=False, timeout=60).headers.get("Location")
        except requests.ConnectionError:
            return None


def test_a_token_is_on_no_command_line_and_the_browser_gets_it_once(told: list[str]) -> None:
    open_browser(URL)
    (address,) = told
    assert "token" not in address
    assert followed(f"{address}favicon.ico") is None
    assert followed(address) == URL
    assert followed(address) is None


def test_other_users_of_the_machine_are_led_nowhere(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_tunnel, "peer_users", lambda _: {os.getuid() + 1})
    open_browser(URL)
    assert followed(told[0]) is None
    monkeypatch.undo()
    assert followed(told[0]) == URL
