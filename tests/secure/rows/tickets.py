"""Somebody who has no ticket at all."""

from __future__ import annotations

from tests.secure.field import Field
from tests.secure.row import row


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
