"""Orders to alice's master that were overheard, said again."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from tests.secure.field import Field
from tests.secure.row import row
from tests.secure.victim import Victim


@row("replayed-order", "say the sealed order with a newer token again, as bob, and with alice's own ticket")
def replayed_order(field: Field) -> str:
    victim = field.victim()
    known = _tokens(victim)
    overheard = _overhear(victim)
    field.expect(len(overheard) == 2, f"a token was brought in {len(overheard)} requests")
    victim.until(lambda: _tokens(victim) == known + 1, "the event of the token")
    bob, alice = field.visitor("bob"), field.visitor("alice")
    url = f"{victim.page}control/tokens?proxyapproved=true"
    for body in overheard:
        answer = bob.ask("PUT", url, body)
        field.expect(answer.code == 403, f"bob's replay: {answer.code} {answer.first}")
    last = [alice.ask("PUT", url, body) for body in overheard][-1]
    field.expect(last.code != 200, f"the replay as alice was taken: {last.first}")
    _overhear(victim)  # an honest one again: its event comes after whatever the replays have made
    victim.until(lambda: _tokens(victim) > known + 1, "the event of the next token")
    field.expect(_tokens(victim) == known + 2, "the master has taken a token again")
    readable = [body for body in overheard if "token" in body and "data" not in body]
    field.expect(not readable, "the order could be read")
    return f"bob: 403; with alice's ticket: {last.code} {last.first[:70]}; no token was taken again"


def _overhear(victim: Victim) -> list[str]:
    """The bodies of what brings her master a newer token, as they go through YARN's proxy."""
    bodies: list[str] = []
    original = requests.Session.send

    def send(session: requests.Session, request: requests.PreparedRequest, **more: Any) -> requests.Response:
        answer = original(session, request, **more)
        if "control/tokens" in str(request.url) and answer.status_code == 200:
            body = request.body
            bodies.append(body.decode() if isinstance(body, bytes) else str(body))
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests.Session, "send", send)
        life = victim.job.hook.job(victim.id, victim.job.identity).refresh_store_token()
    assert life is not None, "the store asks for no token"
    return [body for body in dict.fromkeys(bodies) if json.loads(body)]


def _tokens(victim: Victim) -> int:
    return sum(each["event"] == "store_token" for each in victim.job.events())
