"""The token file of user processes: what is in it, who may read it, and that it follows the container's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tony_provider.runtime.common import contract
from tony_provider.runtime.executor.executor_container import ContainerCredentials
from tony_provider.runtime.executor.hadoop_access import UserTokens
from tony_provider.runtime.hadoop.errors import CredentialsError
from tony_provider.runtime.hadoop.tokens import AM_RM_TOKEN, HDFS_TOKEN, NM_TOKEN, WEBHDFS_TOKEN, Credentials, Token
from tony_provider.runtime.protocol.store_tokens import StoreToken


def hdfs_token(service: str, password: bytes = b"password") -> Token:
    return Token(b"alice", password, HDFS_TOKEN, service)


ONE, OTHER = hdfs_token("ha-hdfs:one"), hdfs_token("10.0.0.7:8020")
STORE = Token(b"alice", b"password", WEBHDFS_TOKEN)  # of the same HDFS, which has two names
OTHERS = {
    "rm": Token(b"master", b"of-the-master", AM_RM_TOKEN, ""),
    "nm": Token(b"node", b"of-the-node", NM_TOKEN, "10.0.0.1:45454"),
    "web": Token(b"alice", b"of-webhdfs", WEBHDFS_TOKEN, "10.0.0.7:9870"),
    "else": Token(b"alice", b"of-hbase", "HBASE_AUTH_TOKEN", "hbase"),
}
SECRETS = {
    contract.SECRET_TASK_TOKEN: b"of-the-executor",
    contract.SECRET_STORE_TOKEN: STORE.to_url_string().encode(),
    contract.SECRET_USER_PREFIX + "PASSWORD": b"of-the-user",
}


@pytest.fixture
def credentials() -> ContainerCredentials:
    return ContainerCredentials(Credentials({"a": ONE, "b": OTHER, **OTHERS}, dict(SECRETS)))


@pytest.fixture
def made(credentials: ContainerCredentials, tmp_path: Path) -> UserTokens:
    return UserTokens(credentials, tmp_path / "tokens")


def held(tmp_path: Path) -> Credentials:
    return Credentials.read_file(tmp_path / "tokens")


def test_hdfs_tokens_of_all_namenodes_and_nothing_else(made: UserTokens, tmp_path: Path) -> None:
    made.follow()
    assert held(tmp_path) == Credentials({"a": ONE, "b": OTHER})
    assert made.services == ["ha-hdfs:one", "10.0.0.7:8020"]
    assert b"of-" not in (tmp_path / "tokens").read_bytes()


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_only_its_owner_may_read_it(made: UserTokens, tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        made.follow()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "tokens").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokens"]


def test_newer_tokens_replace_the_file_as_a_whole(
    made: UserTokens, credentials: ContainerCredentials, tmp_path: Path
) -> None:
    made.follow()
    newer = Token(b"newer", b"renewed!", WEBHDFS_TOKEN, "")
    with (tmp_path / "tokens").open("rb") as reading:  # by a process that is in the middle of it
        begun = reading.read(4)
        credentials.take_store_token(StoreToken(newer.to_url_string(), 0))
        made.follow()
        assert Credentials.from_bytes(begun + reading.read()) == Credentials({"a": ONE, "b": OTHER})
    there = held(tmp_path).tokens.values()
    assert {(token.service, token.password) for token in there if token.identifier == b"newer"} == {
        (service, b"renewed!") for service in (ONE.service, OTHER.service)
    }
    assert stat.S_IMODE((tmp_path / "tokens").stat().st_mode) == 0o600


def test_what_is_not_a_token_changes_nothing(
    made: UserTokens, credentials: ContainerCredentials, tmp_path: Path
) -> None:
    with pytest.raises(CredentialsError):
        credentials.take_store_token(StoreToken("no token", 0))
    made.follow()
    assert held(tmp_path) == Credentials({"a": ONE, "b": OTHER})


def test_a_file_of_the_same_tokens_is_left_alone(made: UserTokens, tmp_path: Path) -> None:
    made.follow()
    before = (tmp_path / "tokens").stat().st_ino
    made.follow()
    assert (tmp_path / "tokens").stat().st_ino == before


def test_without_hdfs_tokens_there_is_no_file(tmp_path: Path) -> None:
    made = UserTokens(ContainerCredentials(Credentials(dict(OTHERS), dict(SECRETS))), tmp_path / "tokens")
    made.follow()
    assert made.services == []
    assert not (tmp_path / "tokens").exists()


def test_what_could_not_be_written_is_written_later(credentials: ContainerCredentials, tmp_path: Path) -> None:
    made = UserTokens(credentials, tmp_path / "later" / "tokens")
    with pytest.raises(FileNotFoundError):
        made.follow()
    (tmp_path / "later").mkdir()
    made.follow()
    assert made.services == ["ha-hdfs:one", "10.0.0.7:8020"]
    assert Credentials.read_file(tmp_path / "later" / "tokens") == Credentials({"a": ONE, "b": OTHER})


def test_a_file_that_was_withdrawn_is_there_again_for_the_next_process(made: UserTokens, tmp_path: Path) -> None:
    made.follow()
    made.remove()
    made.remove()
    assert list(tmp_path.iterdir()) == []
    made.follow()
    assert held(tmp_path) == Credentials({"a": ONE, "b": OTHER})
