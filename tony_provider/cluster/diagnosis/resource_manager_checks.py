"""Checks of each ResourceManager by itself: is it one, and is it the active one?"""

from __future__ import annotations

import time
from collections.abc import Iterator

import attrs
import requests

from tony_provider.cluster.diagnosis.finding import Finding, ok, problem, warning
from tony_provider.cluster.diagnosis.http import (
    Unanswered,
    Way,
    asks_for_kerberos,
    json_of,
    nature,
    remote_exception,
)
from tony_provider.cluster.diagnosis.kerberos_checks import refused
from tony_provider.cluster.yarn.rest import said_exception
from tony_provider.runtime.http_clock import ahead_of

_ADVICE = "the connection's host takes the ResourceManager's web address, by default http://<host>:8088"
_CLOCKS = "Clocks"
_MOST_SKEW = 300.0  # seconds: Kerberos accepts no more
_SKEW = 30.0


@attrs.define
class ResourceManagerChecks:
    """Checks of single ResourceManagers; remembers what each has shown."""

    way: Way
    active: list[str] = attrs.field(factory=list)
    standby: list[str] = attrs.field(factory=list)
    skews: list[float] = attrs.field(factory=list)  # seconds that they are ahead of us

    def check(self, address: str) -> Iterator[Finding]:
        what = f"ResourceManager {address}"
        try:
            before = time.time()
            response = self.way.send("GET", f"{address}/ws/v1/cluster/info")
            self._note_clock(response, before)
        except Unanswered as error:
            yield problem(what, error.detail, error.advice)
            return
        yield self._judge(what, address, response)

    def _judge(self, what: str, address: str, response: requests.Response) -> Finding:
        info = json_of(response).get("clusterInfo")
        if response.ok and isinstance(info, dict):
            version = f"Hadoop {info.get('resourceManagerVersion', 'of unknown version')}"
            if str(info.get("haState", "ACTIVE")) == "ACTIVE":
                self.active.append(address)
                return ok(what, f"active, {version}")
            self.standby.append(address)
            return ok(what, f"standby, {version}")
        if response.is_redirect or "standby RM" in response.text:
            self.standby.append(address)
            return ok(what, "standby")
        if asks_for_kerberos(response):
            return refused(what, said_exception(response)[1], has_ticket=self.way.auth is not None)
        if said := remote_exception(response):
            return problem(what, f"it answered {response.status_code} ({said})", _ADVICE)
        return problem(what, f"this is {nature(address, self.way, response)}", _ADVICE)

    def _note_clock(self, response: requests.Response, before: float) -> None:
        skew = ahead_of(response.headers.get("Date"), before, time.time())
        if skew is not None:
            self.skews.append(skew)

    def together(self) -> Iterator[Finding]:
        """The findings that only all of them together give."""
        if self.standby and not self.active:
            advice = "wait for a failover, or see to it: yarn rmadmin -getAllServiceState"
            yield problem("ResourceManagers", "none of those that answer is active", advice)
        if self.skews:
            yield _clocks(max(self.skews, key=abs))


def _clocks(skew: float) -> Finding:
    which = "ahead of" if skew > 0 else "behind"
    detail = f"the ResourceManager's is {abs(skew):.0f} s {which} this host's"
    if abs(skew) < _SKEW:
        return ok(_CLOCKS, "this host's and the ResourceManager's agree")
    if abs(skew) < _MOST_SKEW:
        return warning(_CLOCKS, detail, "let both keep time by NTP")
    return problem(_CLOCKS, detail, "let both keep time by NTP: Kerberos accepts 5 minutes at most")
