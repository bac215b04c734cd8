"""Tokens of the store in credentials, and how long they hold."""

from __future__ import annotations

from tests.runtime.delegation_tokens import made
from tony_provider.runtime.common import contract
from tony_provider.runtime.hadoop.tokens import HDFS_TOKEN, WEBHDFS_TOKEN, Credentials, Token
from tony_provider.runtime.protocol.status import TokenLife
from tony_provider.runtime.protocol.store_tokens import put_store_token, replace_store_token, store_token

NAMENODE, NAMESERVICE = "10.0.0.7:8020", "ha-hdfs:prod"


def test_a_token_serves_localisation_and_the_runtime() -> None:
    token = Token(b"identifier", b"password", WEBHDFS_TOKEN, "")
    credentials = Credentials()
    put_store_token(credentials, token.to_url_string(), [NAMENODE, NAMESERVICE])
    for service in (NAMENODE, NAMESERVICE):
        assert credentials.tokens[service] == Token(b"identifier", b"password", HDFS_TOKEN, service)
    assert Token.from_url_string(credentials.secrets[contract.SECRET_STORE_TOKEN].decode()) == token


def test_a_newer_one_takes_the_place_of_the_one_that_is_there() -> None:
    credentials = Credentials({"am": Token(b"i", b"p", "YARN_AM_RM_TOKEN")})
    put_store_token(credentials, made(1, 0, 10).text, [NAMENODE, NAMESERVICE])
    newer = made(2, 5, 15)
    replace_store_token(credentials, newer)
    expected = Credentials({"am": Token(b"i", b"p", "YARN_AM_RM_TOKEN")})
    put_store_token(expected, newer.text, [NAMENODE, NAMESERVICE])
    assert credentials == expected


def test_the_first_one_holds_as_long_as_it_can_be_renewed() -> None:
    credentials = Credentials()
    assert store_token(credentials) is None
    put_store_token(credentials, made(1, 1000, 9000).text, [NAMENODE])
    found = store_token(credentials)
    assert found is not None
    assert (found.id.issued_ms, found.until_ms) == (1000, 9000)


def test_the_times_of_a_tokens_life() -> None:
    life = TokenLife(1000, 9000)
    assert (life.half_ms, life.last_quarter_ms) == (5000, 7000)
