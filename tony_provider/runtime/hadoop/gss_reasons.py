"""Why Kerberos, or a Hadoop server for its sake, has refused: in plain words, and what to do about it.

The words looked for are those of MIT's library (its error tables for krb5 and GSS-API), of Java's ``KrbException``, and
of Hadoop's own refusals.
"""

from __future__ import annotations

import re
from typing import Optional

import attrs

_NAME = "write the server's full host name, as its principal has it, instead of an alias or an IP address"


@attrs.frozen
class GssReason:
    """What is behind an error of Kerberos, and its remedy."""

    pattern: re.Pattern[str]
    meaning: str
    remedy: str


def _reason(pattern: str, meaning: str, remedy: str) -> GssReason:
    return GssReason(re.compile(pattern, re.IGNORECASE), meaning, remedy)


_REASONS = (
    _reason(
        r"is not allowed to impersonate",
        "the cluster does not let this user act for others",
        "have hadoop.proxyuser.<that user>.hosts and .groups (or .users) set on NameNodes and ResourceManagers, or "
        "leave proxy_user out",
    ),
    _reason(
        r"tries to renew a token|with non-?matching renewer|Failed to renew token",
        "HDFS lets nobody renew this token but the one it names, and that is not who tries to",
        "set `rm_principal` in the tony connection to the ResourceManager's own principal",
    ),
    _reason(
        r"Clock skew too great",
        "the clocks of this machine and of the server, or the KDC, differ by more than Kerberos allows (5 minutes)",
        "let all keep time by NTP",
    ),
    _reason(
        r"ticket expired|credentials? (has|have) expired|credentials expired|TKT_EXPIRED",
        "the Kerberos ticket has expired",
        "run kinit, or let `airflow kerberos` run",
    ),
    _reason(
        r"No (Kerberos )?credentials (cache )?(available|found|were supplied)|No credentials cache|"
        r"No credential data|Can't find client principal|Credentials cache file .* not found",
        "there is no Kerberos ticket",
        "run kinit, or let `airflow kerberos` run, as the user of this process",
    ),
    _reason(
        r"Client .*not found in Kerberos database|C_PRINCIPAL_UNKNOWN",
        "the KDC does not know who we are",
        "check the principal and its realm",
    ),
    _reason(
        r"Server .*not found in Kerberos database|S_PRINCIPAL_UNKNOWN|Server not found",
        "the KDC knows no server of this name",
        f"{_NAME}; or have the principal added",
    ),
    _reason(
        r"Failed to find any Kerberos|Cannot find key (of appropriate type|for type)|Checksum failed|"
        r"Specified version of key is not available|Wrong principal|No key table entry|Integrity check",
        "the server has no key for the ticket: its keytab is of another principal, or an old one",
        f"{_NAME}; or have its keytab made anew",
    ),
    _reason(r"Request is a replay", "the server takes this request for the copy of an earlier one", "try again"),
    _reason(
        r"Preauthentication failed|Password incorrect",
        "the KDC does not accept the keytab: its key is not the present one",
        "have the keytab made anew",
    ),
    _reason(
        r"Cannot contact any KDC|Cannot find KDC|unreachable KDC",
        "no KDC answers",
        "check the network, and the realm's KDCs in krb5.conf",
    ),
)


def reason(said: str) -> Optional[GssReason]:
    """What is behind an error; None: it is of another kind."""
    return next((each for each in _REASONS if each.pattern.search(said)), None)


def explained(said: str) -> str:
    """An error with its meaning and its remedy, where they are known."""
    found = reason(said)
    return said if found is None else f"{found.meaning} ({said}); {found.remedy}"
