"""The worker's ticket in its file, as a real KDC has given it and MIT's tools have written it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.hadoop.cluster import HadoopCluster
from tony_provider.cluster.yarn.credentials import GrantingTicket


@pytest.mark.parametrize(("asked", "hours"), [([], 2), (["-r", "5h"], 5)])
def test_until_when_a_ticket_can_be_renewed(
    secure_hadoop: HadoopCluster, tmp_path: Path, asked: list[str], hours: int
) -> None:
    cache = f"FILE:{tmp_path / 'cache'}"
    keytab = str(secure_hadoop.layout.keytab("alice"))
    command = ["kinit", "-c", cache, "-l", "2h", *asked, "-k", "-t", keytab, "alice"]
    subprocess.run(command, env=secure_hadoop.layout.kerberos_environment("alice"), check=True, timeout=60)
    ticket = GrantingTicket.read(cache)
    assert ticket is not None
    now = time.time()
    assert now < ticket.until <= now + 2 * 3600
    assert now + (hours - 1) * 3600 < ticket.renewable_until <= now + hours * 3600


@pytest.mark.parametrize("content", [b"", b"\5\4", b"\5\3\0\0", b"\5\4\0\0" + b"\0\0\0\1" * 9, b"x" * 999])
def test_what_is_no_cache_tells_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cache").write_bytes(content)
    assert GrantingTicket.read(str(tmp_path / "cache")) is None
    assert GrantingTicket.read("KEYRING:persistent:1000") is None
    assert GrantingTicket.read(f"FILE:{tmp_path / 'nothing'}") is None
