"""Addresses that anybody on the way reads along at, on clusters with Kerberos."""

from __future__ import annotations

from tony_provider.cluster.errors import ConnectionProblem
from tony_provider.cluster.settings import Settings

REMEDY = (
    "write the https addresses (by default port 8090 of ResourceManagers, 9871 of NameNodes) with `verify` and "
    "`nodes_ca_file` where their authority is your own, or, where nobody can listen on the way, set `insecure_http` "
    "to true in the tony connection"
)
_SENT = "a submission carries the job's keys, secrets and HDFS tokens, which whoever listens on the way could use"


def refuse_plain_http(settings: Settings) -> None:
    """Refuse to send keys and tokens where they could be read, unless the connection allows it.

    Raises ConnectionProblem, which names the addresses.
    """
    if settings.yarn is None or settings.yarn.insecure_http:
        return
    if plain := settings.yarn.plain_addresses:
        raise ConnectionProblem(f"{', '.join(plain)}: plain http with Kerberos, and {_SENT}; {REMEDY}")
