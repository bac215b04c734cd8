"""The library of MIT Kerberos with a real KDC, and a server that Python's gssapi is; Hadoop's servers are in
``tests/hooks/test_kerberos_errors.py`` and ``tests/runtime/storage/test_kerberos.py``."""

from __future__ import annotations

import base64
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gssapi
import pytest

from tests.hadoop.config import Layout
from tests.hadoop.kdc import Kdc
from tests.hadoop.ports import free_ports
from tests.hadoop.settings import REALM
from tests.waiting import until
from tony_provider.cluster.errors import ClusterAuthError
from tony_provider.cluster.yarn.credentials import own_tickets, ticket
from tony_provider.runtime.hadoop.gss import GssError, TicketExchange, Tickets
from tony_provider.runtime.storage.errors import StorageAuthError
from tony_provider.runtime.storage.webhdfs.transport import spnego_error

DAY = 86_400


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    layout = Layout(tmp_path_factory.mktemp("kdc"))
    kdc = Kdc(layout, f"127.0.0.1:{free_ports(1)[0]}")
    kdc.create()
    with subprocess.Popen(kdc.command(), env=kdc.environment(), stdout=subprocess.DEVNULL) as process:
        try:
            until(lambda: _listens(kdc.address), "the KDC")
            yield layout
        finally:
            process.terminate()


def _listens(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


@pytest.fixture(autouse=True)
def alice(layout: Layout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in layout.kerberos_environment("alice").items():
        if name.startswith("KRB5"):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")


def proof(layout: Layout, exchange: TicketExchange) -> str:
    """What the server HTTP@localhost answers."""
    store: dict[bytes | str, bytes | str] = {"keytab": str(layout.keytab("HTTP")), "rcache": "none:"}
    context = gssapi.SecurityContext(creds=gssapi.Credentials(usage="accept", store=store), usage="accept")
    answer = context.step(base64.b64decode(exchange.headers["Authorization"].removeprefix("Negotiate ")))
    assert context.complete
    assert str(context.initiator_name) == f"alice@{REALM}"
    return f"Negotiate {base64.b64encode(answer or b'').decode()}"


def test_an_exchange_with_a_server_that_proves_itself(layout: Layout) -> None:
    exchange = own_tickets().negotiate("localhost")
    exchange.check(proof(layout, exchange))
    found = ticket()
    assert (found.principal, found.user) == (f"alice@{REALM}", "alice")
    assert found.seconds is not None
    assert 0 < found.seconds <= DAY


@pytest.mark.parametrize("answer", [None, "Negotiate", "Negotiate b25seSBtZQ==", "Negotiate ?", "Basic realm=x"])
def test_a_server_that_does_not_prove_itself(answer: str | None) -> None:
    with pytest.raises(ClusterAuthError, match="localhost did not prove to be HTTP@localhost"):
        own_tickets().negotiate("localhost").check(answer)


def test_a_proof_is_of_one_exchange(layout: Layout) -> None:
    first, second = own_tickets().negotiate("localhost"), own_tickets().negotiate("localhost")
    answer = proof(layout, first)
    with pytest.raises(ClusterAuthError, match="its proof is wrong"):
        second.check(answer)
    first.check(answer)


def test_many_threads_at_once(layout: Layout) -> None:
    """As in a triggerer, whose triggers ask from many threads with the tickets of one file."""

    def exchange(_: int) -> str:
        found = own_tickets().negotiate("localhost")
        found.check(proof(layout, found))
        return ticket().principal

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(exchange, range(400))) == {f"alice@{REALM}"}


def test_no_ticket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", f"FILE:{tmp_path}/none.keytab")
    for act in (ticket, lambda: own_tickets().negotiate("localhost")):
        with pytest.raises(ClusterAuthError, match=r"there is no Kerberos ticket \(No Kerberos.*run kinit"):
            act()


def test_a_ticket_that_has_expired(layout: Layout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keytab = str(layout.keytab("alice"))
    subprocess.run(["kinit", "-l", "1s", "-k", "-t", keytab, "alice"], check=True, capture_output=True, timeout=60)
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", f"FILE:{tmp_path}/none.keytab")  # which would renew it
    expired = r"the Kerberos ticket has expired \(.*; run kinit"

    def refused() -> bool:
        try:
            own_tickets().negotiate("localhost")
        except ClusterAuthError as error:
            return re.search(expired, str(error)) is not None
        return False

    until(refused, "the end of the ticket")
    with pytest.raises(ClusterAuthError, match=expired):
        ticket()


def test_a_server_that_the_kdc_does_not_know() -> None:
    with pytest.raises(ClusterAuthError, match=r"for HTTP@nowhere: the KDC knows no server of this name .*write the s"):
        own_tickets().negotiate("nowhere")


def test_errors_of_a_storage() -> None:
    with pytest.raises(StorageAuthError, match=r"authenticate with HTTP@nowhere: no Kerberos ticket for HTTP@nowhere"):
        Tickets(spnego_error).negotiate("nowhere")


def keytab(layout: Layout, user: str) -> Tickets:
    return Tickets.of_keytab(layout.keytab("alice"), f"{user}@{REALM}", spnego_error)


def test_tickets_of_a_keytab(layout: Layout) -> None:
    exchange = keytab(layout, "alice").negotiate("localhost")
    exchange.check(proof(layout, exchange))
    with pytest.raises(StorageAuthError, match="no Kerberos ticket for HTTP@localhost"):
        keytab(layout, "bob").negotiate("localhost")


@pytest.fixture
def no_kdc(layout: Layout, tmp_path: Path) -> str:
    """A krb5.conf with a KDC that does not answer."""
    config = layout.krb5_conf.read_text()
    kdc, nobody = re.search(r"^ +kdc = (\S+)$", config, re.MULTILINE), f"127.0.0.1:{free_ports(1)[0]}"
    assert kdc is not None
    (tmp_path / "krb5.conf").write_text(config.replace(kdc[1], nobody))
    return str(tmp_path / "krb5.conf")


def test_why_the_kdc_gives_no_ticket(no_kdc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: the owner of a ticket was "no ticket", whatever the KDC had said, such as a wrong clock."""
    monkeypatch.setenv("KRB5_CONFIG", no_kdc)
    for act in (ticket, lambda: own_tickets().negotiate("localhost")):
        with pytest.raises(ClusterAuthError, match="no KDC answers"):
            act()


def test_each_keytab_has_its_own_tickets(
    layout: Layout, no_kdc: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keytab(layout, "alice").negotiate("localhost")
    other = shutil.copy(layout.keytab("alice"), tmp_path / "other.keytab")
    monkeypatch.setenv("KRB5_CONFIG", no_kdc)
    with pytest.raises(StorageAuthError, match="no KDC answers"):
        Tickets.of_keytab(Path(other), f"alice@{REALM}", spnego_error).negotiate("localhost")


class CarelessLibrary:
    """The node's own library, but one that does not grant the mutual authentication that it is asked for."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def gss_init_sec_context(self, *arguments: Any) -> int:
        wanted = 5  # the place of what is asked for, in RFC 2744
        major: int = self._library.gss_init_sec_context(*arguments[:wanted], 0, *arguments[wanted + 1 :])
        return major


def test_an_exchange_that_ends_without_a_servers_proof_by_a_careless_library(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    tickets = keytab(layout, "alice")
    monkeypatch.setattr(tickets, "_gss", CarelessLibrary(tickets._gss))
    with pytest.raises(StorageAuthError, match="without mutual authentication"):
        tickets.negotiate("localhost")


def test_a_machine_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise GssError("libgssapi_krb5.so.2 of MIT Kerberos is not installed: no such file")

    monkeypatch.setattr("tony_provider.runtime.hadoop.gss._load_library", missing)
    with pytest.raises(Exception, match=r"is not installed.*\(Debian: libgssapi-krb5-2"):
        ticket()
