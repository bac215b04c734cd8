"""Who may look, and wants more; and a script in a page of somebody else's that alice looks at."""

from __future__ import annotations

import json

from tests.secure.field import Field
from tests.secure.row import row

_ORDER = json.dumps({"reason": "not from here"})
_CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"


@row("viewer", "as one of the job's viewers: look at it, then order, kill, and look at another job of alice's")
def viewer(field: Field) -> str:
    other = field.victim()
    victim = field.victim(acls={"view": {"users": ["bob"]}})
    bob = field.visitor("bob")
    seen = bob.ask("GET", f"{victim.page}status?proxyapproved=true")
    field.expect(seen.code == 200, f"a viewer sees {seen.code} {seen.first}")
    for what, answer in (
        ("an order", bob.ask("PUT", f"{victim.page}control/stop?proxyapproved=true", _ORDER)),
        ("a kill", bob.ask("PUT", f"{victim.api}/state", '{"state": "KILLED"}')),
        ("her other job", bob.ask("GET", f"{other.page}status?proxyapproved=true")),
    ):
        field.expect(answer.code in (401, 403), f"{what}: {answer.code} {answer.first}")
    return "sees the job whose viewer he is; order, kill and her other job: 403"


@row("cross-site", "have alice's browser give orders: by a script of another page of the proxy's, and by forms")
def cross_site(field: Field) -> str:
    victim = field.victim()
    alice, url = field.visitor("alice"), f"{victim.page}control/stop"
    origin = field.hadoop.rm_webapp[0]
    told = []
    for headers in (
        {"Origin": origin, "Accept-Language": "en", "User-Agent": _CHROME},
        {"Origin": "null"},
        {"User-Agent": _CHROME},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
    ):
        answer = alice.ask("PUT", url, _ORDER, headers)
        field.expect(answer.code in (400, 403, 415), f"{headers}: {answer.code} {answer.first}")
        told.append(answer.code)
    return f"{len(told)} orders with alice's own ticket, none taken: {', '.join(map(str, sorted(set(told))))}"
