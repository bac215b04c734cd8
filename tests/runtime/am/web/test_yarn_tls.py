"""Https between YARN's proxy and a master: with a certificate as YARN makes them, and for nobody but the proxy."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.runtime.am.flood import flooding
from tests.runtime.am.web.site import DEADLINE, HOST, PORTS, Master, OpenGate, router
from tests.runtime.certificates import certificate
from tests.runtime.hadoop.java_keystores import keystore
from tony_provider.runtime.am.web.authentication import proxy_tls, remove_files
from tony_provider.runtime.am.web.server import WebServer
from tony_provider.runtime.am.web.web_app import Routes
from tony_provider.runtime.hadoop.java_keystore import KeyEntry, certificate_pem

APPLICATION = "application_1_0001"
REQUEST = b"GET /status HTTP/1.1\r\nHost: master\r\n\r\n"


def der(found: x509.Certificate) -> bytes:
    return found.public_bytes(serialization.Encoding.DER)


def pkcs8(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@attrs.frozen
class Authority:
    """The ResourceManager's ProxyCA: its certificate is the proxy's own, too."""

    key: ec.EllipticCurvePrivateKey = attrs.field(factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    certificate: x509.Certificate = attrs.field()

    @certificate.default
    def _self_signed(self) -> x509.Certificate:
        return certificate("proxy", self.key.public_key(), "proxy", self.key, authority=True)

    def secrets(self) -> dict[str, bytes]:
        """As YARN puts them into the master's token file."""
        key, own = ec.generate_private_key(ec.SECP256R1()), der(self.certificate)
        chain = [der(certificate(APPLICATION, key.public_key(), "proxy", self.key)), own]
        return {
            "yarn.application.am.keystore": keystore("k", [KeyEntry("server", pkcs8(key), chain)]),
            "yarn.application.am.keystore.password": b"k",
            "yarn.application.am.truststore": keystore("t", trusted=[own]),
            "yarn.application.am.truststore.password": b"t",
        }

    def proxy(self, tmp_path: Path) -> ssl.SSLContext:
        """How the proxy asks: the master must be of this authority, whatever its host."""
        context = stranger()
        context.verify_mode = ssl.CERT_REQUIRED
        own = der(self.certificate)
        context.load_verify_locations(cadata=certificate_pem(own).decode())
        file = tmp_path / f"proxy-{id(self)}.pem"
        file.write_bytes(KeyEntry("client", pkcs8(self.key), [own]).pem)
        context.load_cert_chain(file)
        return context


def stranger() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def ask(server: WebServer, context: ssl.SSLContext | None, *, hangs_up: bool = False) -> bytes:
    """All that comes back; ``hangs_up``: as soon as it is there, as Java's clients do, and not when the server does."""
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection(HOST, server.address.port, ssl=context)
        try:
            writer.write(REQUEST)
            if not hangs_up:
                return await reader.read()
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(int(re.findall(rb"(?i)content-length: (\d+)", head)[0]))
            writer.close()
            await writer.wait_closed()
            return head + body
        finally:
            writer.transport.abort()


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def tls(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    monkeypatch.chdir(tmp_path)
    found = proxy_tls(authority.secrets())
    assert found is not None
    assert list(tmp_path.iterdir()) == []  # no key lies about
    return found


@pytest.fixture
async def server(tls: ssl.SSLContext) -> AsyncIterator[WebServer]:
    server = await WebServer.bind(HOST, PORTS, tls)
    try:
        await server.start(Routes(OpenGate(), router(Master())).answer)
        yield server
    finally:
        await server.stop()


@pytest.mark.parametrize("hangs_up", [False, True])
async def test_the_proxy_is_answered(
    server: WebServer, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, hangs_up: bool
) -> None:
    assert server.url.startswith("https://")
    answer = await ask(server, authority.proxy(tmp_path), hangs_up=hangs_up)
    await server.stop()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"state": "RUNNING"' in answer or b'"state":"RUNNING"' in answer
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def refused(server: WebServer, context: ssl.SSLContext | None) -> bool:
    try:
        return await ask(server, context) == b""
    except (ssl.SSLError, ConnectionError):
        return True


async def test_nobody_else_is(server: WebServer, tmp_path: Path) -> None:
    other = Authority().proxy(tmp_path)
    other.verify_mode = ssl.CERT_NONE
    assert await refused(server, stranger())
    assert await refused(server, other)
    assert await refused(server, None)


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "half-a-hello"])
async def test_handshakes_that_are_not_made_do_not_keep_the_proxy_out(
    server: WebServer, authority: Authority, tmp_path: Path, said: bytes
) -> None:
    """More of them than there are places, from the proxy's own host."""
    context = authority.proxy(tmp_path)
    with flooding(HOST, server.address.port, 400, said=said) as flood:
        await asyncio.to_thread(flood.until_closed, 400)
        for _ in range(5):
            assert (await ask(server, context, hangs_up=True)).startswith(b"HTTP/1.1 200 ")
            assert len(server._connections) < 300


def test_where_yarn_asks_for_none() -> None:
    assert proxy_tls({}) is None


def test_a_keystore_that_cannot_be_read_is_told_and_the_job_trains(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = authority.secrets() | {"yarn.application.am.keystore": b"0" * 99}
    assert proxy_tls(damaged) is None
    assert (
        "the page is served over http: the keystore that YARN has made cannot be used: it is not a keystore"
        in caplog.text
    )


def test_the_files_of_the_same_are_removed(tmp_path: Path) -> None:
    store = tmp_path / "yarn_provided.keystore"
    store.write_bytes(b"key")
    remove_files({"KEYSTORE_FILE_LOCATION": str(store), "TRUSTSTORE_FILE_LOCATION": str(tmp_path / "none")})
    assert not store.exists()
