"""What the doctor makes of servers' TLS: real handshakes with servers of all sorts."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.hadoop.ports import free_ports
from tony_provider.cluster.checks.daemons import ServerTls
from tony_provider.cluster.findings import Finding, Severity


def certificate(folder: Path, days: float) -> Path:
    """Of 127.0.0.1, self-signed, which ends in so many days; with its key."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "server")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=9))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / f"server-{days}.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


@contextmanager
def server(pem: Path, *, old: bool = False) -> Iterator[str]:
    """One that shakes hands and hangs up; ``old``: also by TLS 1.0 and 1.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    if old:
        context.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = ssl.TLSVersion.TLSv1
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                try:
                    with context.wrap_socket(connection, server_side=True) as opened:
                        opened.recv(1)
                except OSError:
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(30)


def look(address: str, verify: bool | str, *, for_nodes: bool = False) -> list[Finding]:
    return list(ServerTls(address, verify, for_nodes=for_nodes).check())


def test_a_good_one(tmp_path: Path) -> None:
    pem = certificate(tmp_path, 90)
    with server(pem) as address:
        [finding] = look(address, str(pem))
    assert finding.outcome is Severity.OK
    assert finding.what == f"TLS of {address}"
    assert "TLSv1.3, with a certificate until" in finding.detail


def test_a_certificate_that_ends_soon_or_has_ended(tmp_path: Path) -> None:
    with server(certificate(tmp_path, 20.5)) as address:
        finding = look(address, False)[0]
    assert finding.outcome is Severity.WARNING
    assert finding.detail.startswith("its certificate ends on 20")
    assert ", in 20 days" in finding.detail
    with server(certificate(tmp_path, -1)) as address:
        assert look(address, False)[0].detail.startswith("its certificate ended on 20")


def test_old_versions(tmp_path: Path) -> None:
    pem = certificate(tmp_path, 90)
    with server(pem, old=True) as address:
        [finding] = look(address, str(pem))
    assert finding.outcome is Severity.WARNING
    assert "it still accepts TLSv1.1, which is insecure" in finding.detail


def test_an_authority_that_the_nodes_may_lack(tmp_path: Path) -> None:
    pem = certificate(tmp_path, 90)
    with server(pem) as address:
        [finding] = look(address, str(pem), for_nodes=True)
    assert finding.outcome is Severity.WARNING
    assert "the nodes may have no other authorities" in finding.detail
    assert "set `nodes_ca_file`" in finding.advice


def test_certificates_that_nobody_checks(tmp_path: Path) -> None:
    with server(certificate(tmp_path, 90)) as address:
        _, finding = look(address, False, for_nodes=True)
    assert finding.outcome is Severity.WARNING
    assert "is not verified" in finding.detail


@pytest.mark.parametrize("verify", [True, False])
def test_who_does_not_answer_is_told_by_others(verify: bool) -> None:
    assert look(f"https://127.0.0.1:{free_ports(1)[0]}", verify) == []
