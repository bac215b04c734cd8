"""Java's keystores: those of the JDK's own tool are read, and whatever else there is gets the one error."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from tests.hadoop.tools import keytool_program
from tests.runtime.hadoop.java_keystores import digest, keystore
from tony_provider.runtime.hadoop.java_keystore import JavaKeystore, KeyEntry, KeystoreError

PASSWORD = "pässword"
entries = st.builds(
    KeyEntry,
    st.text("abc-0", max_size=9),
    st.binary(min_size=1, max_size=400),
    st.lists(st.binary(max_size=99), max_size=3),
)
stores = st.tuples(st.lists(entries, max_size=3), st.lists(st.binary(max_size=99), max_size=3))


def keytool(store: Path, act: str, *arguments: str) -> None:
    command = [str(keytool_program()), act, "-keystore", str(store), "-storetype", "JKS", "-storepass", "changeit"]
    subprocess.run([*command, *arguments], check=True, capture_output=True, timeout=60)


def test_one_that_java_has_made(tmp_path: Path) -> None:
    store = tmp_path / "store.jks"
    asked = ["-alias", "server", "-dname", "CN=application_1_0001", "-keyalg", "RSA", "-keypass", "changeit"]
    keytool(store, "-genkeypair", *asked)
    keytool(store, "-exportcert", "-alias", "server", "-rfc", "-file", str(tmp_path / "it.pem"))
    keytool(store, "-importcert", "-alias", "again", "-noprompt", "-file", str(tmp_path / "it.pem"))
    found = JavaKeystore.read(store.read_bytes(), "changeit")
    entry = found.only_key
    assert entry.alias == "server"
    assert found.trusted == entry.chain
    certificate = x509.load_der_x509_certificate(entry.chain[0])
    assert certificate.subject.rfc4514_string() == "CN=application_1_0001"
    key = serialization.load_pem_private_key(entry.pem, None)
    assert key.public_key() == certificate.public_key()
    with pytest.raises(KeystoreError, match="the password is wrong"):
        JavaKeystore.read(store.read_bytes(), "changed")


@given(stores)
def test_what_is_written_is_read(written: tuple[list[KeyEntry], list[bytes]]) -> None:
    found = JavaKeystore.read(keystore(PASSWORD, *written), PASSWORD)
    assert (found.keys, found.trusted) == written


@given(stores, st.data())
def test_damage_behind_a_right_digest_is_told_by_the_one_error(
    written: tuple[list[KeyEntry], list[bytes]], data: st.DataObject
) -> None:
    body = bytearray(keystore(PASSWORD, *written)[:-20])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(0, len(body))) :]
    try:
        JavaKeystore.read(bytes(body) + digest(bytes(body), PASSWORD), PASSWORD)
    except KeystoreError as error:
        assert str(error)  # noqa: PT017 - what else there may be is read


@given(st.binary(max_size=200), st.sampled_from([b"", b"\xfe\xed\xfe\xed\x00\x00\x00\x02", b"\xce\xce\xce\xce", b"0"]))
def test_garbage_is_refused(garbage: bytes, start: bytes) -> None:
    with pytest.raises(KeystoreError):
        JavaKeystore.read(start + garbage, PASSWORD)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (keystore(PASSWORD, [KeyEntry("a", b"key", [])], algorithm=b"\x30\x00"), "not encrypted with the algorithm"),
        (keystore(PASSWORD), "contains 0 keys instead of one"),
        (bytes(2 << 20), "larger than"),
    ],
)
def test_what_is_no_use(content: bytes, problem: str) -> None:
    with pytest.raises(KeystoreError, match=problem):
        _ = JavaKeystore.read(content, PASSWORD).only_key
