"""Checks of what the active ResourceManager says: does it take applications, where, how do masters reach it?"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from tony_provider.cluster.diagnosis.finding import Finding, ok, problem, warning
from tony_provider.cluster.errors import ConfigurationHidden, ConnectionProblem
from tony_provider.cluster.yarn.cluster import YarnCluster
from tony_provider.cluster.yarn.queue_acl import may_submit

SUBMISSION = "Applications over REST"
SCHEDULER = "Scheduler address"
QUEUE = "Queue"
PAGES = "Masters' pages"
_POLICY = "yarn.resourcemanager.application-https.policy"


@attrs.frozen
class SchedulerChecks:
    """Checks that ask the active ResourceManager. All raise ClusterError."""

    cluster: YarnCluster
    queue: str | None  # the connection's

    def submission(self) -> Iterator[Finding]:
        self.cluster.new_application()  # unused, it costs nothing
        yield ok(SUBMISSION, f"{self.cluster.user} is given application ids")

    def its_queue(self) -> Iterator[Finding]:
        if self.queue is None:
            yield ok(QUEUE, "the connection names none: YARN places jobs that name none themselves")
            return
        what = f"{QUEUE} {self.queue}"
        if found := self.cluster.queue_problem(self.queue):
            yield problem(what, found, "name another as the connection's `queue`")
            return
        allowed = may_submit(self.cluster, self.queue)
        if allowed.known is False:
            yield problem(what, allowed.detail, "ask for access (acl_submit_applications), or name another queue")
        elif allowed.known is None:
            yield warning(what, allowed.detail, "should jobs be refused there, ask its administrator")
        else:
            yield ok(what, allowed.detail)

    def pages(self) -> Iterator[Finding]:
        """How YARN's proxy speaks to application masters: for their pages, and to stop them."""
        try:
            policy = (self.cluster.rest.setting(_POLICY) or "NONE").upper()
            proxy = self.cluster.rest.setting("yarn.web-proxy.address")
        except ConfigurationHidden:
            return  # it is told with the scheduler's address
        if policy == "NONE":
            yield ok(PAGES, f"YARN's proxy asks masters over http ({_POLICY} is NONE)")
        elif proxy:
            detail = f"{_POLICY} is {policy}, and the stand-alone proxy {proxy} has none of the keys that it takes"
            yield warning(
                PAGES, detail, "masters cannot be reached by it; use the ResourceManager's own proxy, or NONE"
            )
        else:
            yield ok(PAGES, f"YARN's proxy asks masters over https ({_POLICY} is {policy})")

    def addresses(self) -> Iterator[Finding]:
        try:
            schedulers = self.cluster.schedulers()
        except ConnectionProblem as error:
            yield problem(SCHEDULER, str(error), "")
            return
        yield ok(SCHEDULER, f"application masters are told {', '.join(schedulers)}")
        try:
            self.cluster.rest.setting("fs.defaultFS")
        except ConfigurationHidden:
            yield warning(
                "ResourceManager's configuration",
                "it is shown to administrators only",
                "set `scheduler_address`, a full `staging_dir` and, with Kerberos, `rm_principal` in the connection",
            )
