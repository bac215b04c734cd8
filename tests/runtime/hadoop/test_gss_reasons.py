"""Errors of Kerberos in plain words. Their texts were seen from MIT's library, Java and Hadoop; real ones are produced
in ``tests/hooks/test_kerberos_errors.py``."""

from __future__ import annotations

import pytest

from tony_provider.runtime.hadoop.gss import explained


@pytest.mark.parametrize(
    ("said", "meaning", "remedy"),
    [
        (
            "No Kerberos credentials available (default cache: FILE:/tmp/krb5cc_0)",
            "there is no Kerberos ticket",
            "kinit",
        ),
        ("Ticket expired", "the Kerberos ticket has expired", "run kinit"),
        (
            "GSSException: Failure (Mechanism level: Clock skew too great (37))",
            "clocks",
            "NTP",
        ),
        ("Clock skew too great", "the clocks of this machine", "NTP"),
        ("Server HTTP/x@R not found in Kerberos database", "the KDC knows no server of this name", "full host name"),
        ("Client alice@R not found in Kerberos database", "the KDC does not know this client's principal", "principal"),
        (
            "GSSException: Failure (Mechanism level: Invalid argument (400) - Cannot find key "
            "of appropriate type to decrypt AP-REQ - AES256 CTS mode with HMAC SHA1-96)",
            "the server has no key for the ticket",
            "full host name",
        ),
        (
            "GSSException: Failure (Mechanism level: Checksum failed)",
            "no key",
            "replace its keytab",
        ),
        (
            "Failure (Mechanism level: Request is a replay (34))",
            "a replay of an earlier",
            "retry",
        ),
        ("Preauthentication failed", "does not accept the keytab", "replace the keytab"),
        ("Cannot contact any KDC for realm 'R'", "no KDC answers", "krb5.conf"),
        ("User: alice@R is not allowed to impersonate bob", "impersonate other users", "hadoop.proxyuser"),
        ("alice tries to renew a token (…) with renewer yarn", "only the renewer", "rm_principal"),
    ],
)
def test_each_has_its_meaning_and_its_remedy(said: str, meaning: str, remedy: str) -> None:
    text = explained(said)
    assert meaning in text.partition(f"({said})")[0]
    assert remedy in text.partition(f"({said})")[2]


def test_others_stay_as_they_are() -> None:
    assert explained("Permission denied: user=alice") == "Permission denied: user=alice"
