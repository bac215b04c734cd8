"""Whether a job may train for longer than its HDFS token can live, with nobody to bring it newer ones.

Or with somebody whose own Kerberos ticket ends before that.
"""

from __future__ import annotations

import logging
import time

from tony_provider.cluster.errors import JobRejected
from tony_provider.runtime.clock import moment
from tony_provider.runtime.protocol.store_token import StoreToken
from tony_provider.runtime.quantities import span
from tony_provider.runtime.spec.model import JobSpec

log = logging.getLogger(__name__)

_REMEDY = (
    "run `airflow tony renew` regularly and set `tokens_renewed` in the connection, let the task wait "
    "(wait_for_completion), or name a `master_keytab`"
)


def check_token_life(token: StoreToken, job: JobSpec) -> None:
    """Check a job that nobody waits for, and that nobody brings newer tokens, against the token it begins with.

    Raises JobRejected where its own time limit is longer. Without one it may end soon enough: that is told in the log.
    """
    about = min([token.id, *(each.id for each in token.others)], key=lambda each: each.latest_ms)
    seconds = (about.latest_ms - about.issued_ms) / 1000
    alone = f"its HDFS token lives for {span(seconds)}, and nobody waits for the job to bring it newer ones"
    limit = job.timeouts.lifetime
    if limit is not None and limit > seconds:
        raise JobRejected([f"timeouts.lifetime is {span(limit)}, {alone}: {_REMEDY}, or shorten it"])
    if limit is None:
        log.warning("Should the job take longer: %s. Then %s", alone, _REMEDY)


def check_ticket(until: float | None, token: StoreToken, job: JobSpec) -> None:
    """Tell in the log when the ticket of whoever waits for a job ends before the job need.

    ``until``: epoch seconds, after which the ticket cannot be renewed; None: it does not end, or nobody can tell. What
    counts is the job's own time limit; without one, that a newer token could be brought once.
    """
    limit = job.timeouts.lifetime
    needed = (token.id.issued_ms + token.id.latest_ms) / 2000 if limit is None else time.time() + limit
    if until is not None and until < needed:
        log.warning(
            "This worker's Kerberos ticket ends at %s, and cannot be renewed beyond that. Without another one nobody "
            "then sees how the job goes or brings it newer HDFS tokens, and it may run until %s or longer; have "
            "`airflow kerberos` keep one, or name a `master_keytab` in the connection",
            moment(int(until * 1000)),
            moment(int(needed * 1000)),
        )
