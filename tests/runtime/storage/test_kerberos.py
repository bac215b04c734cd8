"""A real secure HDFS: SPNEGO as a user with a keytab, then the delegation token alone, as the nodes do."""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Iterator
from types import MappingProxyType

import attrs
import gssapi
import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.settings import REALM
from tony_provider.runtime.hadoop.gss import Tickets
from tony_provider.runtime.hadoop.tokens import DelegationTokenId, Token
from tony_provider.runtime.storage import (
    Negotiate,
    StorageAuthError,
    StorageError,
    StoragePermissionDenied,
    WebHdfsConfig,
    WebHdfsStorage,
    read_bytes,
)
from tony_provider.runtime.storage.webhdfs.transport import spnego_error

MIB = 1 << 20
DAY_MS = 86_400_000


class Exchange:
    """As the Airflow side has it, with a keytab in place of its own ticket."""

    def __init__(self, context: gssapi.SecurityContext) -> None:
        self.context = context
        self.headers = {"Authorization": "Negotiate " + base64.b64encode(context.step() or b"").decode()}
        self.answers: list[str | None] = []

    def check(self, answer: str | None) -> None:
        self.answers.append(answer)
        self.context.step(base64.b64decode((answer or "").removeprefix("Negotiate ")))
        assert self.context.complete


class Nonsense:
    headers = MappingProxyType({"Authorization": "Negotiate "})

    def check(self, answer: str | None) -> None:
        raise AssertionError(answer)


@attrs.frozen
class Kerberos:
    """Makes the callable that a storage takes, for users with keytabs."""

    cluster: HadoopCluster

    def negotiate_as(self, user: str) -> Negotiate:
        keytab = str(self.cluster.layout.keytab(user))
        lock = threading.Lock()

        def negotiate(host: str) -> Exchange:
            with lock:
                name = gssapi.Name(user, gssapi.NameType.user)
                store: dict[bytes | str, bytes | str] = {"client_keytab": keytab, "ccache": f"MEMORY:{user}"}
                credentials = gssapi.Credentials(name=name, usage="initiate", store=store)
                service = gssapi.Name(f"HTTP@{host}", gssapi.NameType.hostbased_service)
                return Exchange(gssapi.SecurityContext(name=service, creds=credentials, usage="initiate"))

        return negotiate


@pytest.fixture
def kerberos(secure_hadoop: HadoopCluster, monkeypatch: pytest.MonkeyPatch) -> Kerberos:
    for name, value in secure_hadoop.layout.kerberos_environment("alice").items():
        if name.startswith("KRB5"):
            monkeypatch.setenv(name, value)
    return Kerberos(secure_hadoop)


@pytest.fixture
def config(secure_hadoop: HadoopCluster) -> WebHdfsConfig:
    return WebHdfsConfig(list(secure_hadoop.webhdfs), ca_file=str(secure_hadoop.layout.ca_file), timeout=20)


@pytest.fixture
def alice(config: WebHdfsConfig, kerberos: Kerberos) -> WebHdfsStorage:
    return WebHdfsStorage(config, negotiate=kerberos.negotiate_as("alice"))


@pytest.fixture
def directory(alice: WebHdfsStorage) -> Iterator[str]:
    uri = f"hdfs:///tmp/{uuid.uuid4().hex}"
    alice.make_directories(uri)
    yield uri
    alice.remove(uri, recursive=True)


def test_files_by_spnego(alice: WebHdfsStorage, directory: str) -> None:
    data = bytes(3 * MIB)
    alice.write(f"{directory}/a", data)
    assert alice.status(f"{directory}/a").owner == "alice"
    assert read_bytes(alice, f"{directory}/a") == data
    assert [status.name for status in alice.list(directory)] == ["a"]


def test_a_token_does_without_kerberos(alice: WebHdfsStorage, config: WebHdfsConfig, directory: str) -> None:
    token = alice.get_delegation_token("yarn")
    assert token
    node = WebHdfsStorage(config, delegation_token=token)
    node.write(f"{directory}/a/b", b"hello")
    assert node.status(f"{directory}/a/b").owner == "alice"
    assert read_bytes(node, f"{directory}/a/b") == b"hello"
    node.rename(f"{directory}/a/b", f"{directory}/c")
    assert [status.name for status in node.list(directory)] == ["a", "c"]


def test_a_cancelled_token_is_refused(alice: WebHdfsStorage, config: WebHdfsConfig, directory: str) -> None:
    first, second = alice.get_delegation_token("alice"), alice.get_delegation_token("alice")
    assert first
    assert second
    node = WebHdfsStorage(config, delegation_token=first)
    assert node.status(directory).is_directory
    alice.cancel_delegation_token(first)
    with pytest.raises(StorageAuthError) as error:
        node.status(directory)
    assert first not in str(error.value)
    assert WebHdfsStorage(config, delegation_token=second).status(directory).is_directory


def test_a_token_names_its_renewer(alice: WebHdfsStorage) -> None:
    token = alice.get_delegation_token("yarn")
    assert token
    about = DelegationTokenId.from_bytes(Token.from_url_string(token).identifier)
    assert (about.owner.split("@")[0], about.renewer, about.real_user) == ("alice", "yarn", "")
    assert about.latest_ms - about.issued_ms == 7 * DAY_MS


def test_a_newer_token_takes_the_place_of_one_that_has_ended(
    alice: WebHdfsStorage, config: WebHdfsConfig, directory: str
) -> None:
    first, second = alice.get_delegation_token("alice"), alice.get_delegation_token("alice")
    assert first
    assert second
    node = WebHdfsStorage(config, delegation_token=first)
    alice.cancel_delegation_token(first)
    with pytest.raises(StorageAuthError):
        node.status(directory)
    node.take_token(second)
    assert node.status(directory).is_directory
    about = DelegationTokenId.from_bytes(Token.from_url_string(second).identifier)
    until_ms = alice.renew_delegation_token(second)
    assert about.issued_ms + DAY_MS <= until_ms < about.latest_ms


def test_only_its_renewer_renews_a_token(alice: WebHdfsStorage) -> None:
    token = alice.get_delegation_token("yarn")
    assert token
    with pytest.raises(StorageError, match="alice tries to renew a token"):
        alice.renew_delegation_token(token)


def test_tickets_of_a_keytab_by_the_nodes_own_library(
    config: WebHdfsConfig, kerberos: Kerberos, directory: str
) -> None:
    tickets = Tickets.of_keytab(kerberos.cluster.layout.keytab("alice"), f"alice@{REALM}", spnego_error)
    node = WebHdfsStorage(config, negotiate=tickets.negotiate)
    node.write(f"{directory}/a", b"x")
    assert node.status(f"{directory}/a").owner == "alice"


def test_without_credentials(config: WebHdfsConfig) -> None:
    with pytest.raises(StorageAuthError, match="Kerberos"):
        WebHdfsStorage(attrs.evolve(config, user="alice")).status("hdfs:///tmp")
    with pytest.raises(StorageError):  # Hadoop's decoder stumbles over it
        WebHdfsStorage(config, delegation_token="nonsense").status("hdfs:///tmp")
    with pytest.raises(StorageAuthError):
        WebHdfsStorage(config, negotiate=lambda host: Nonsense()).status("hdfs:///tmp")


def test_acting_for_another_user(config: WebHdfsConfig, kerberos: Kerberos, directory: str) -> None:
    as_alice = attrs.evolve(config, proxy_user="alice")
    service = WebHdfsStorage(as_alice, negotiate=kerberos.negotiate_as("airflow"))
    service.write(f"{directory}/a", b"x")
    assert service.status(f"{directory}/a").owner == "alice"
    token = service.get_delegation_token("yarn")
    assert token
    assert read_bytes(WebHdfsStorage(config, delegation_token=token), f"{directory}/a") == b"x"
    own = service.get_delegation_token("alice")
    assert own
    assert service.renew_delegation_token(own) > 0
    with pytest.raises(StoragePermissionDenied):
        WebHdfsStorage(as_alice, negotiate=kerberos.negotiate_as("bob")).status(directory)
