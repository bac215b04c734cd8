"""The certificates of a cluster over https: a private authority, and one certificate for all its servers."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.hadoop.config import Layout
from tests.hadoop.settings import LOOPBACK, WEB_LOOPBACK
from tests.hadoop.tools import keytool_program

TOOL_SECONDS = 60
_DAYS = "365"


class TlsError(Exception):
    """The JDK's keytool failed; the message is what it said."""


@dataclass(frozen=True)
class Tls:
    """The keystores of one cluster, in its `tls` folder; Hadoop reads them by ssl-server.xml and ssl-client.xml."""

    layout: Layout

    def create(self, hosts: Iterable[str]) -> None:
        """An authority (`ca.pem` for clients of ours), and keystore and truststore for servers on these hosts."""
        folder = self.layout.tls
        # Containers of other users read ca.pem in it; what is secret is its owner's alone.
        folder.mkdir(parents=True, mode=0o711)
        self.layout.tls_password.touch(0o600)
        self.layout.tls_password.write_text(secrets.token_hex(16))
        names = ",".join(["dns:localhost", *(f"ip:{host}" for host in sorted({LOOPBACK, *WEB_LOOPBACK, *hosts}))])
        authority, server = str(folder / "authority.p12"), str(self.layout.keystore)
        self._key(authority, "ca", "CN=Authority of a test cluster", "bc:critical=ca:true")
        self.layout.ca_file.write_bytes(self._tool(authority, "-exportcert", "-alias", "ca", "-rfc"))
        self._key(server, "server", "CN=localhost")
        request = self._tool(server, "-certreq", "-alias", "server")
        signed = self._tool(
            authority, "-gencert", "-alias", "ca", "-rfc", "-validity", _DAYS, "-ext", f"san={names}", said=request
        )
        authority_pem = self.layout.ca_file.read_bytes()
        for store in (server, str(self.layout.truststore)):
            self._tool(store, "-importcert", "-alias", "ca", "-noprompt", said=authority_pem)
        self._tool(server, "-importcert", "-alias", "server", said=signed)
        for store in (authority, server):
            Path(store).chmod(0o600)

    def _key(self, store: str, alias: str, subject: str, *extensions: str) -> None:
        more = [part for each in extensions for part in ("-ext", each)]
        asked = ["-alias", alias, "-dname", subject, "-keyalg", "RSA", "-keysize", "2048", "-validity", _DAYS]
        self._tool(store, "-genkeypair", *asked, *more)

    def _tool(self, store: str, act: str, *arguments: str, said: bytes = b"") -> bytes:
        command = [str(keytool_program()), act, "-keystore", store, "-storetype", "PKCS12", *arguments]
        command += ["-storepass:file", str(self.layout.tls_password)]
        done = subprocess.run(command, input=said, capture_output=True, timeout=TOOL_SECONDS, check=False)
        if done.returncode != 0:
            raise TlsError(f"keytool {act} failed:\n{(done.stdout + done.stderr).decode(errors='replace')[-2000:]}")
        return done.stdout
