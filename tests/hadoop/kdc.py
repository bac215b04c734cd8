"""A real MIT Kerberos KDC as an ordinary process on a loopback port."""

from __future__ import annotations

import os
import secrets
import subprocess
from dataclasses import dataclass

from tests.hadoop.config import Layout
from tests.hadoop.settings import LOOPBACK, ORDINARY_USERS, REALM, WEB_LOOPBACK
from tests.hadoop.tools import kdc_program

SERVICES = ("hdfs", "yarn", "hive")
TOOL_SECONDS = 30

_KRB5_CONF = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  # Always TCP: Java and MIT agree on it, and nothing is ever cut.
  udp_preference_limit = 1
  forwardable = true
  ticket_lifetime = 1d
[realms]
  {realm} = {{
    kdc = {kdc}
  }}
[domain_realm]
  localhost = {realm}
"""
_KDC_CONF = """\
[kdcdefaults]
  kdc_listen = {kdc}
  kdc_tcp_listen = {kdc}
[realms]
  {realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/kadm5.acl
    max_life = 1d
    max_renewable_life = 7d
  }}
"""


class KdcError(Exception):
    """A tool of the KDC failed; the message is what it said."""


@dataclass(frozen=True)
class Kdc:
    """The realm of one cluster, in its `kerberos` folder."""

    layout: Layout
    address: str

    def create(self) -> None:
        """Configuration, database, principals and their keytabs, anew."""
        folder = self.layout.kerberos
        # What is secret in it is its owner's alone; containers of other users read its krb5.conf.
        folder.mkdir(parents=True, mode=0o711)
        values = {"realm": REALM, "kdc": self.address, "folder": folder}
        self.layout.krb5_conf.write_text(_KRB5_CONF.format(**values))
        (folder / "kdc.conf").write_text(_KDC_CONF.format(**values))
        (folder / "http-secret").touch(0o600)
        (folder / "http-secret").write_text(secrets.token_hex(32))
        self._tool("kdb5_util", "create", "-s", "-r", REALM, "-P", secrets.token_hex(16))
        # One process for all of them: each start of kadmin.local opens the database anew.
        commands = [line for keytab, names in _principals().items() for line in self._add(keytab, names)]
        self._tool("kadmin.local", "-r", REALM, said="\n".join([*commands, "quit", ""]))
        missing = [keytab for keytab in _principals() if not self.layout.keytab(keytab).is_file()]
        if missing:
            raise KdcError(f"kadmin.local made no keytab for {', '.join(missing)}")

    def command(self) -> list[str]:
        return [str(kdc_program("krb5kdc")), "-n", "-r", REALM, "-P", str(self.layout.kerberos / "kdc.pid")]

    def environment(self) -> dict[str, str]:
        own = {"KRB5_CONFIG": str(self.layout.krb5_conf), "KRB5_KDC_PROFILE": str(self.layout.kerberos / "kdc.conf")}
        return os.environ | own

    def _add(self, keytab: str, names: list[str]) -> list[str]:
        lines = [f"addprinc -randkey {name}" for name in names]
        return [*lines, f"ktadd -k {self.layout.keytab(keytab)} {' '.join(names)}"]

    def _tool(self, name: str, *arguments: str, said: str = "") -> None:
        done = subprocess.run(
            [str(kdc_program(name)), *arguments],
            input=said,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TOOL_SECONDS,
            env=self.environment(),
            check=False,
        )
        if done.returncode != 0:
            raise KdcError(f"{name} failed:\n{done.stdout[-2000:]}")


def _principals() -> dict[str, list[str]]:
    """What each keytab holds. Web addresses are known by the host in the URL, so HTTP has one for each."""
    services = {name: [f"{name}/localhost"] for name in SERVICES}
    hosts = ("localhost", LOOPBACK, *WEB_LOOPBACK)
    users = {name: [name] for name in ORDINARY_USERS}
    return services | {"HTTP": [f"HTTP/{host}" for host in hosts]} | users
