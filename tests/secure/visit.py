"""HTTP as an attacker asks: with whose ticket, or none, with which headers, from which address."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from tests.hadoop.config import Layout

SECONDS = 20


@dataclass(frozen=True)
class Answer:
    code: int  # of HTTP; 0: there was none, and the text says why
    text: str

    @property
    def refused(self) -> bool:
        """By who it is, or what it may."""
        return self.code in (401, 403)

    @property
    def first(self) -> str:
        return " ".join(self.text.split())[:160]


@dataclass(frozen=True)
class Visitor:
    """Requests by curl. ``user``: whose keytab; None: no ticket at all, nor a way to get one."""

    layout: Layout
    user: str | None

    def ask(
        self,
        method: str,
        url: str,
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
        source: str | None = None,
    ) -> Answer:
        """``source``: the address of this machine that it comes from."""
        command = ["curl", "--silent", "--show-error", "--noproxy", "*", "--location", "--request", method]
        command += ["--max-time", str(SECONDS), "--cacert", str(self.layout.ca_file), "--write-out", "\n%{http_code}"]
        command += ["--negotiate", "--user", ":"] if self.user else []
        command += ["--interface", source] if source else []
        sent = dict(headers or {})
        if body is not None:
            command += ["--data-binary", "@-"]
            sent = {"Content-Type": "application/json"} | sent
        for name, value in sent.items():
            command += ["--header", f"{name}: {value}"]
        done = subprocess.run(
            [*command, url],
            input=(body or "").encode(),
            capture_output=True,
            timeout=SECONDS + 5,
            env=self.layout.kerberos_environment(self.user) if self.user else _nobody(self.layout),
            check=False,
        )
        text, _, code = done.stdout.decode(errors="replace").rpartition("\n")
        return Answer(int(code or 0), text or done.stderr.decode(errors="replace"))


def _nobody(layout: Layout) -> dict[str, str]:
    nowhere = {"KRB5CCNAME": "FILE:/nonexistent/ccache", "KRB5_CLIENT_KTNAME": "FILE:/nonexistent/keytab"}
    return os.environ | {"KRB5_CONFIG": str(layout.krb5_conf)} | nowhere
