"""What is accepted of a server by ``hadoop.rpc.protection``: never less than the weakest that is listed there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.hadoop.errors import RpcAuthenticationError
from tony_provider.runtime.hadoop.sasl import (
    AUTH,
    AUTH_CONF,
    AUTH_INT,
    DigestMd5Client,
    accepted_protection,
    parse_directives,
)

WEAKEST_FIRST = {"authentication": AUTH, "integrity": AUTH_INT, "privacy": AUTH_CONF}
STRENGTH = list(WEAKEST_FIRST.values())


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("privacy", (AUTH_CONF,)),
        ("integrity", (AUTH_CONF, AUTH_INT)),
        ("privacy, authentication", (AUTH_CONF, AUTH_INT, AUTH)),
        ("INTEGRITY,\n privacy", (AUTH_CONF, AUTH_INT)),
        ("", (AUTH_CONF, AUTH_INT, AUTH)),
        ("something else", (AUTH_CONF, AUTH_INT, AUTH)),
    ],
)
def test_what_is_listed(listed: str, expected: tuple[str, ...]) -> None:
    assert accepted_protection(listed) == expected


@given(
    listed=st.lists(st.sampled_from(list(WEAKEST_FIRST)), min_size=1),
    offered=st.lists(st.sampled_from(STRENGTH), min_size=1),
)
def test_never_less_than_the_weakest_that_is_listed(listed: list[str], offered: list[str]) -> None:
    least = min(STRENGTH.index(WEAKEST_FIRST[word]) for word in listed)
    challenge = f'nonce="n",algorithm=md5-sess,cipher="rc4",qop="{",".join(offered)}"'.encode()
    client = DigestMd5Client("u", "p", "/default", accepted=accepted_protection(",".join(listed)))
    strongest = max(STRENGTH.index(each) for each in offered)
    if strongest < least:
        with pytest.raises(RpcAuthenticationError, match=r"hadoop\.rpc\.protection"):
            client.respond(challenge)
    else:
        assert parse_directives(client.respond(challenge))["qop"] == [STRENGTH[strongest]]
