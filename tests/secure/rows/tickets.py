"""Somebody who has no ticket at all; and alice's own worker, whose clock is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.secure.field import Field
from tests.secure.row import row

_REMEDY = ("the clocks of this machine and of the server", "synchronize all clocks with NTP")


@row("no-ticket", "submit, list, read, kill and look without a ticket, and as alice by a parameter", by="anybody")
def no_ticket(field: Field) -> str:
    victim = field.victim()
    nobody = field.visitor(None)
    asked = 0
    for suffix in ("", "user.name=alice"):
        for method, url, body in (
            ("POST", f"{field.hadoop.rm_webapp[0]}/ws/v1/cluster/apps/new-application", ""),
            ("GET", victim.api, None),
            ("PUT", f"{victim.api}/state", '{"state": "KILLED"}'),
            ("GET", f"{victim.webhdfs()}/status.json?op=OPEN", None),
            ("DELETE", f"{victim.webhdfs()}?op=DELETE&recursive=true", None),
            ("GET", f"{victim.webhdfs()}?op=GETDELEGATIONTOKEN&renewer=yarn", None),
            ("GET", victim.page, None),
            ("GET", f"{victim.page}status", None),
            ("PUT", f"{victim.page}control/stop", '{"reason": "no ticket"}'),
        ):
            address = url + (("&" if "?" in url else "?") + suffix if suffix else "")
            field.refused(f"{method} {address}", nobody.ask(method, address, body))
            asked += 1
    return f"{asked} requests, each refused with 401 or 403"


@row(
    "clock-skew", "ask with a clock that is 20 minutes ahead: the KDC, and servers with tickets from before", by="alice"
)
def clock_skew(field: Field) -> str:
    """MIT's library puts a wrong clock right by the KDC's answer (kdc_timesync), unless it is told not to."""
    victim, layout = field.victim(), field.hadoop.layout
    config, cache = field.folder / "krb5.conf", field.folder / "ccache"
    config.write_text(layout.krb5_conf.read_text().replace("[libdefaults]", "[libdefaults]\n  kdc_timesync = 0"))
    environment = layout.kerberos_environment("alice") | {"KRB5_CONFIG": str(config), "KRB5CCNAME": f"FILE:{cache}"}
    asked = ["-m", "tests.secure.reader", json.dumps(field.place.connection)]
    asked += [victim.job.identity.slug, victim.job.identity.digest, victim.id, "status"]

    def ask(*before: str) -> str:
        done = subprocess.run(
            [*before, sys.executable, *asked],
            cwd=Path(__file__).parents[3],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        field.expect(done.returncode == 0, f"the worker died: {done.returncode} {done.stderr[-500:]}")
        return str(json.loads(done.stdout.strip().splitlines()[-1])["outcome"]) if done.returncode == 0 else ""

    ahead = ("faketime", "-f", "+20m")
    of_kdc = ask(*ahead)
    cache.unlink(missing_ok=True)
    right = ask()  # and with it the tickets for the servers
    of_server = ask(*ahead)
    field.expect(right.startswith("read "), f"with the right clock: {right}")
    for said in (of_kdc, of_server):
        field.expect(all(words in said for words in _REMEDY), f"with a wrong clock: {said}")
    return f"by the KDC's answer: {of_kdc[:150]}; by the server: {of_server[:150]}"
