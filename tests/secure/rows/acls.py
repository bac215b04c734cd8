"""Who may look, and wants more; and a script in a page of somebody else's that alice looks at."""

from __future__ import annotations

import json

from tests.hadoop.settings import GROUPS
from tests.secure.field import Field
from tests.secure.row import row
from tests.secure.victim import Victim
from tests.secure.visit import Visitor

_ORDER = json.dumps({"reason": "not from here"})
_CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"


@row(
    "viewer",
    "as a viewer of a job, by name or by a group: look at it, then order, kill, and look at another job of alice's",
    by="airflow, bob",
)
def viewer(field: Field) -> str:
    """Her records on the store are no part of it: they are in a home that HDFS keeps closed."""
    other = field.victim()
    [group] = GROUPS
    by_name = field.submit_victim(acls={"view": {"users": ["airflow"]}})
    by_group = field.victim(acls={"view": {"groups": [group]}})
    by_name.until_running()
    for user, his, not_his in (("airflow", by_name, by_group), ("bob", by_group, by_name)):
        _looks_and_no_more(field, field.visitor(user), his, (other, not_his))
    return f"each sees the job whose viewer he is, bob as one of the group {group}; orders, kills and other jobs: 403"


def _looks_and_no_more(field: Field, visitor: Visitor, his: Victim, others: tuple[Victim, ...]) -> None:
    # As a browser that has passed the proxy's warning.
    seen = visitor.ask("GET", f"{his.page}status?proxyapproved=true")
    field.expect(seen.code == 200 and "worker" in seen.text, f"{visitor.user}, a viewer, sees {seen.code} {seen.first}")
    known = visitor.ask("GET", his.api)
    field.expect(his.id in known.text and '"user":"alice"' in known.text, f"of YARN he hears {known.first}")
    for what, answer in (
        ("an order", visitor.ask("PUT", f"{his.page}control/stop?proxyapproved=true", _ORDER)),
        ("a kill", visitor.ask("PUT", f"{his.api}/state", '{"state": "KILLED"}')),
        *((f"another job, {each.id}", visitor.ask("GET", f"{each.page}status?proxyapproved=true")) for each in others),
    ):
        field.expect(answer.code in (401, 403), f"{what}: {answer.code} {answer.first}")


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
