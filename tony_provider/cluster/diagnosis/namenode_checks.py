"""Checks of each NameNode by itself: is it one, and does it agree with the connection on Kerberos?"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import requests

from tony_provider.cluster.diagnosis.finding import Finding, ok, problem
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

_ADVICE = "`webhdfs` takes the NameNode's web address, by default http://<host>:9870 (50070 in Hadoop 2)"


@attrs.define
class NameNodeChecks:
    """Checks of single NameNodes; remembers which of them answer as they should."""

    way: Way
    answering: list[str] = attrs.field(factory=list)
    active: list[str] = attrs.field(factory=list)

    def check(self, address: str) -> Iterator[Finding]:
        what = f"NameNode {address}"
        url = f"{address}/webhdfs/v1/?op=GETFILESTATUS"
        try:
            if self.way.auth is not None and not asks_for_kerberos(self.way.send("GET", url, authenticated=False)):
                yield problem(what, "it asks for no Kerberos, and the connection does", "set `kerberos` to false in it")
                return
            response = self.way.send("GET", url)
        except Unanswered as error:
            yield problem(what, error.detail, error.advice)
            return
        yield self._judge(what, address, response)

    def _judge(self, what: str, address: str, response: requests.Response) -> Finding:
        said = remote_exception(response)
        if response.ok and "FileStatus" in json_of(response):
            self.answering.append(address)
            self.active.append(address)
            return ok(what, "active")
        if "StandbyException" in said:
            self.answering.append(address)
            return ok(what, "standby")
        if asks_for_kerberos(response):
            return refused(what, said_exception(response)[1], has_ticket=self.way.auth is not None)
        if said:
            return problem(what, f"it answered {response.status_code} ({said})", _ADVICE)
        return problem(what, f"this is {nature(address, self.way, response)}", _ADVICE)

    def together(self) -> Iterator[Finding]:
        if self.answering and not self.active:
            advice = "wait for a failover, or see to it: hdfs haadmin -getAllServiceState"
            yield problem("NameNodes", "none of those that answer is active", advice)
