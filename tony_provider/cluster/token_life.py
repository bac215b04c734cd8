"""Whether a job may train for longer than its HDFS token can live, with nobody to bring it newer ones."""

from __future__ import annotations

import logging

from tony_provider.cluster.errors import JobRejected
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
