"""WebHDFS over https: a scripted NameNode with a certificate of its own."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.runtime.storage.servers import STANDBY, Reply, Request, scripted
from tony_provider.runtime.storage import StorageAuthError, StorageError, WebHdfsConfig, WebHdfsStorage

STATUS = Reply(
    200, b'{"FileStatus":{"length":3,"modificationTime":1,"type":"FILE","owner":"alice","permission":"600"}}'
)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate of 127.0.0.1 and its key, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "namenode")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    return path


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_a_known_authority_is_accepted(tls: ssl.SSLContext, certificate: Path) -> None:
    with scripted(lambda _: STATUS, tls) as address:
        assert WebHdfsStorage(WebHdfsConfig([address], ca_file=str(certificate))).status("hdfs:///a").size == 3


def test_an_unknown_authority_is_refused_at_once(tls: ssl.SSLContext) -> None:
    with scripted(lambda _: STATUS, tls) as address, pytest.raises(StorageAuthError, match="ca_file"):
        WebHdfsStorage(WebHdfsConfig([address])).status("hdfs:///a")


def test_checking_can_be_switched_off(tls: ssl.SSLContext) -> None:
    with scripted(lambda _: STATUS, tls) as address:
        assert WebHdfsStorage(WebHdfsConfig([address], verify=False)).status("hdfs:///a").size == 3


def test_nothing_follows_to_plain_http(tls: ssl.SSLContext, certificate: Path) -> None:
    """The address that a NameNode sends on to holds a token."""
    asked: list[str] = []

    def plain(request: Request) -> Reply:
        asked.append(request.path)
        return Reply(200, b"bytes")

    with scripted(plain) as datanode:
        sends_on = Reply(307, location=f"{datanode}/webhdfs/v1/a?op=OPEN&delegation=secret")
        answers = {"OPEN": sends_on, "CREATE": sends_on, "GETFILESTATUS": STATUS}
        other = Reply(200, b'{"boolean": true}')
        with scripted(lambda request: answers.get(request.op, other), tls) as namenode:
            store = WebHdfsStorage(WebHdfsConfig([namenode], ca_file=str(certificate), timeout=2))
            with pytest.raises(StorageError, match="only https is configured, but the NameNode redirects to http://"):
                store.open_read("hdfs:///a")
            with pytest.raises(StorageError, match="only https is configured, but the NameNode redirects to http://"):
                store.write("hdfs:///a", b"bytes", overwrite=True)
    assert asked == []


def test_https_is_checked_beside_plain_http(tls: ssl.SSLContext, certificate: Path) -> None:
    """Where only the second NameNode speaks https."""
    with scripted(lambda _: STANDBY) as first, scripted(lambda _: STATUS, tls) as second:
        assert WebHdfsStorage(WebHdfsConfig([first, second], ca_file=str(certificate))).status("hdfs:///a").size == 3
        with pytest.raises(StorageAuthError, match="ca_file"):
            WebHdfsStorage(WebHdfsConfig([first, second])).status("hdfs:///a")
