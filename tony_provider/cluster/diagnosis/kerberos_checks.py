"""Checks of Kerberos: is there a ticket, whose, for how long, and what it means when a server does not take it."""

from __future__ import annotations

from collections.abc import Iterator

from tony_provider.cluster.diagnosis.finding import Finding, ok, problem, warning
from tony_provider.cluster.errors import ClusterAuthError
from tony_provider.cluster.yarn.kerberos import Ticket, ticket
from tony_provider.runtime.hadoop.gss_reasons import reason

WHAT = "Kerberos ticket"
_SHORT = 600  # seconds


def check_ticket(login: str | None, seen: list[Ticket]) -> Iterator[Finding]:
    """Check the worker's ticket.

    :param login: the connection's.
    :param seen: the ticket is added to it.
    """
    try:
        found = ticket()
    except ClusterAuthError as error:
        yield problem(WHAT, str(error), "")
        return
    if found.seconds == 0:
        yield problem(WHAT, f"that of {found.principal} has expired", "run kinit, or let `airflow kerberos` run")
        return
    seen.append(found)
    left = "" if found.seconds is None else f", valid for another {found.seconds // 60} min"
    detail = f"of {found.principal}{left}"
    if login and login != found.user:
        advice = f"jobs run as {found.user}: leave the connection's user empty, or set it to that"
        yield warning(WHAT, f"{detail}, while the connection's user is {login}", advice)
    elif found.seconds is not None and found.seconds < _SHORT:
        yield warning(WHAT, detail, "renew it: run kinit, or let `airflow kerberos` run")
    else:
        yield ok(WHAT, detail)


def refused(what: str, said: str, *, has_ticket: bool) -> Finding:
    """The finding for a server that does not accept a request for want of Kerberos, and says so."""
    if not has_ticket:
        return problem(what, "it asks for Kerberos, and the connection does not", "set `kerberos` to true in it")
    if found := reason(said):
        return problem(what, f"it does not accept the Kerberos ticket: {found.meaning} ({said})", found.remedy)
    advice = "see what is said of the ticket; the host's name must be the one of the server's principal, HTTP/<host>"
    return problem(what, "it does not accept the Kerberos ticket", advice)
