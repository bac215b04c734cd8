"""The master's access to its store: which newer tokens are taken, and what is told of the one that is there.

The store here is a directory, which takes any token; tests/jobs/test_token_renewal.py has a real HDFS.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import attrs
import pytest

from tests.runtime.am.chains import describe as description
from tests.runtime.delegation_tokens import made
from tony_provider.runtime.am.token_replacement import StoreAccess, TokenRefusedError
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.hadoop.tokens import HDFS_TOKEN, Credentials, Token
from tony_provider.runtime.protocol.status import TokenLife
from tony_provider.runtime.protocol.store_tokens import OtherToken, StoreToken, put_key_server_token, put_store_token
from tony_provider.runtime.storage import LocalStorage

SERVICE = "ha-hdfs:tony"
FIRST = made(1, 1000, 9000)


@pytest.fixture
def credentials() -> Credentials:
    found = Credentials({"am": Token(b"i", b"p", "YARN_AM_RM_TOKEN")}, {"other": b"secret"})
    put_store_token(found, FIRST.text, [SERVICE])
    return found


@pytest.fixture
def access(credentials: Credentials, tmp_path: Path) -> StoreAccess:
    return StoreAccess(description(tmp_path), credentials, LocalStorage())


async def test_a_newer_token_is_what_all_have_from_then_on(access: StoreAccess, credentials: Credentials) -> None:
    told: list[StoreToken] = []
    access.listeners.append(told.append)
    newer = made(2, 5000, 15000)
    assert access.newer is None
    assert await access.take(newer) == access.life == TokenLife(5000, 15000)
    assert told == [access.newer] == [newer]
    assert credentials.secrets == {"other": b"secret", contract.SECRET_STORE_TOKEN: newer.text.encode()}
    token = Token.from_url_string(newer.text)
    assert credentials.tokens[SERVICE] == Token(token.identifier, token.password, HDFS_TOKEN, SERVICE)
    assert credentials.tokens["am"].kind == "YARN_AM_RM_TOKEN"


async def test_one_that_was_taken_is_taken_once(access: StoreAccess) -> None:
    told: list[StoreToken] = []
    access.listeners.append(told.append)
    newer = made(2, 5000, 15000)
    assert await access.take(newer) == await access.take(newer)
    assert len(told) == 1


async def test_an_older_one_changes_nothing(access: StoreAccess) -> None:
    assert await access.take(made(0, 500, 20000)) == TokenLife(1000, 9000)
    assert access.newer is None


@pytest.mark.parametrize(
    ("token", "why"),
    [
        pytest.param(made(2, 5000, 15000, "bob@TONY.TEST"), "the token belongs to bob@TONY.TEST", id="another user's"),
        pytest.param(StoreToken("no token", 15000), "not a token's URL-safe form", id="no token"),
        pytest.param(StoreToken(Token(b"\7", b"", "x").to_url_string(), 1), "unknown version 7", id="unknown"),
    ],
)
async def test_what_is_not_taken(access: StoreAccess, credentials: Credentials, token: StoreToken, why: str) -> None:
    with pytest.raises(TokenRefusedError, match=why):
        await access.take(token)
    assert credentials.secrets[contract.SECRET_STORE_TOKEN] == FIRST.text.encode()
    assert access.newer is None


async def test_a_store_that_asks_for_none_takes_none(tmp_path: Path) -> None:
    access = StoreAccess(description(tmp_path), Credentials(), LocalStorage())
    assert access.life is None
    assert access.trouble(10**15) is None
    await access.until_it_holds()
    with pytest.raises(TokenRefusedError, match="requires none"):
        await access.take(FIRST)


async def test_a_last_checkpoint_is_asked_for_once_for_each_token_that_nobody_replaces(
    credentials: Credentials, tmp_path: Path
) -> None:
    now = epoch_ms()
    put_store_token(credentials, made(1, now - 9000, now + 1000).text, [SERVICE])
    access = StoreAccess(description(tmp_path), credentials, LocalStorage())
    called: asyncio.Queue[str] = asyncio.Queue()
    minding = asyncio.ensure_future(access.mind(0.5, called.put_nowait))
    try:
        async with asyncio.timeout(30):
            assert (await called.get()).startswith("the HDFS token expires at 20")
            assert epoch_ms() >= now + 500
            await access.take(made(2, now + 1, now + 3_600_000))
            await access.take(made(3, now + 2, now + 700))
            await called.get()
        assert called.empty()
    finally:
        minding.cancel()


def test_people_are_told_when_a_quarter_is_left_and_nobody_has_brought_another(access: StoreAccess) -> None:
    assert access.trouble(6999) is None
    assert "expires at" in str(access.trouble(7001))
    assert "expired at" in str(access.trouble(9001))


KEYS = "kms://http@keys:9600/kms"


@pytest.fixture
def access_of_keys(credentials: Credentials, tmp_path: Path) -> StoreAccess:
    """With a token of a key server beside the store's."""
    put_key_server_token(credentials, KEYS, made(6, 1000, 9000).text, ["10.0.0.9:9600"])
    return StoreAccess(description(tmp_path), credentials, LocalStorage())


async def test_those_beside_the_stores_are_replaced_with_it(
    access_of_keys: StoreAccess, credentials: Credentials
) -> None:
    assert access_of_keys.life == TokenLife(1000, 9000)
    of_keys = OtherToken(KEYS, made(7, 4000, 12000).text, 12000)
    unknown = OtherToken("archive", made(8, 4000, 11000).text, 11000)
    newer = attrs.evolve(made(2, 5000, 15000), others=[of_keys, unknown])
    assert await access_of_keys.take(newer) == TokenLife(4000, 12000)  # of the one that ends first
    assert access_of_keys.newer == attrs.evolve(newer, others=[of_keys])
    token = Token.from_url_string(of_keys.text)
    for alias in (KEYS, "10.0.0.9:9600"):
        assert credentials.tokens[alias] == Token(token.identifier, token.password, token.kind, KEYS)
    assert f"token of {KEYS} expires at" in str(access_of_keys.trouble(10001))


async def test_an_order_without_them_leaves_them_as_they_are(access_of_keys: StoreAccess) -> None:
    """As somebody of an older release brings it."""
    assert await access_of_keys.take(made(2, 5000, 15000)) == TokenLife(1000, 9000)
    assert access_of_keys.newer is not None
    assert access_of_keys.newer.until_ms == 15000


async def test_another_users_is_left_out_and_keeps_nobody_elses_back(
    access_of_keys: StoreAccess, caplog: pytest.LogCaptureFixture
) -> None:
    stolen = OtherToken(KEYS, made(7, 4000, 12000, "bob@TONY.TEST").text, 12000)
    await access_of_keys.take(attrs.evolve(made(2, 5000, 15000), others=[stolen]))
    assert access_of_keys.life == TokenLife(1000, 9000)
    assert f"rejected the newer token of {KEYS}: the token belongs to bob@TONY.TEST" in caplog.text


def test_a_failure_after_the_end_of_a_token_is_explained(access: StoreAccess) -> None:
    assert access.explained("no model", 8999) == "no model"
    said = access.explained("no model", 9001)
    assert said.startswith(
        "no model\n(the application's HDFS token expired at 1970-01-01 00:00:09 UTC: the store is not accessible"
    )
    assert "run `airflow tony renew` regularly" in said
