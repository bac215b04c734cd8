"""Send newer HDFS tokens to the master of a running application, with TLS inside control requests.

The module also checks at submission whether a job may outlive its tokens or this worker's Kerberos ticket.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from tony_provider.cluster.checks.job_checks import refuse_plain_http
from tony_provider.cluster.errors import ClusterError, JobRejected, UnexpectedAnswer
from tony_provider.cluster.open_cluster import OpenCluster
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import APPLICATION_LIMIT, BoundedJsonError, read_json
from tony_provider.runtime.common.clock import moment
from tony_provider.runtime.common.codec import CodecError, from_plain, load_json, to_plain
from tony_provider.runtime.common.quantities import span
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.protocol.http_messages import PipeError, SealedPart, TlsPipe, client_context
from tony_provider.runtime.protocol.status import TokenLife
from tony_provider.runtime.protocol.store_tokens import OtherToken, StoreToken
from tony_provider.runtime.storage import Storage, uris
from tony_provider.runtime.storage.base import read_whole

log = logging.getLogger(__name__)


@attrs.frozen
class MasterContact:
    """The part of an application's description that a client needs to contact the application's master."""

    authority: str  # PEM certificate that authenticates the application's master
    others: frozenset[str]  # names of the application's tokens other than the store's


def read_master_contact(storage: Storage, application_dir: str) -> MasterContact:
    """Read the contact, which the store holds while the application runs. Raises UnexpectedAnswer, StorageError."""
    uri = uris.join(application_dir, contract.LAUNCH_DIR, contract.APPLICATION_FILE)
    try:
        found = read_json(read_whole(storage, uri, APPLICATION_LIMIT))
        others = [str(each["name"]) for each in found.get("other_hdfs", [])]
        others += [found.get(key, "") for key in ("key_server", "hive_metastore")]
        return MasterContact(str(found["authority"]), frozenset(filter(None, others)))
    except (BoundedJsonError, KeyError, TypeError, AttributeError) as error:
        raise UnexpectedAnswer(f"{uri} does not name the application's authority: an older release wrote it") from error


_MOST_PARTS = 6  # maximum number of requests; TLS 1.3 needs two


def send_sealed(
    ask: Callable[[dict[str, Any]], dict[str, Any]], application_id: str, authority: str, order: bytes
) -> bytes:
    """Send an order that only the application's master can read; return the master's answer.

    ``ask`` sends one request body to the master and returns the response; it is usually called twice. ``authority`` is
    the PEM certificate that authenticates the master.

    Raises UnexpectedAnswer if another server answers or the order is rejected, and the errors of ``ask``.
    """
    name = secrets.token_hex(16)
    sent = False
    try:
        pipe = TlsPipe(client_context(authority), application_id)
        said = pipe.give()
        for _ in range(_MOST_PARTS):
            part = SealedPart(name, base64.b64encode(said).decode())
            pipe.take(_data(ask(to_plain(part))))
            if (message := pipe.message()) is not None:
                return message
            said = pipe.give(order if pipe.is_open and not sent else None)
            sent = sent or pipe.is_open
    except PipeError as error:
        raise UnexpectedAnswer(f"{application_id}: {error}") from error
    raise UnexpectedAnswer(f"{application_id}: its master did not complete the exchange in {_MOST_PARTS} requests")


def _data(answer: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(from_plain(answer, SealedPart).data, validate=True)
    except (CodecError, binascii.Error) as error:
        raise UnexpectedAnswer(f"the application's master sent an invalid sealed part: {error}") from error


_REMEDY = (
    "run `airflow tony renew` regularly and set `tokens_renewed` in the connection, let the task wait "
    "(wait_for_completion), or name a `master_keytab`"
)


def check_token_life(token: StoreToken, job: JobSpec) -> None:
    """Check that a job does not outlive its first tokens. Call this if nothing will send newer tokens to the job.

    Raises JobRejected if the job's time limit is longer than the tokens live. A job without a time limit may end soon
    enough, so only log a warning.
    """
    every: list[StoreToken | OtherToken] = [token, *token.others]
    seconds = min(each.until_ms - each.id.issued_ms for each in every) / 1000
    alone = f"its HDFS token is valid for {span(seconds)}, and no waiting task sends newer tokens to the job"
    limit = job.timeouts.lifetime
    if limit is not None and limit > seconds:
        raise JobRejected([f"timeouts.lifetime is {span(limit)}, {alone}: {_REMEDY}, or shorten it"])
    if limit is None:
        log.warning("The job has no time limit: %s. If it may run longer, %s", alone, _REMEDY)


def warn_of_short_ticket(until: float | None, token: StoreToken, job: JobSpec) -> None:
    """Log a warning if the Kerberos ticket of the process that waits for the job may end before the job.

    ``until`` is the time (epoch seconds) after which the ticket cannot be renewed; None if there is no such time or it
    is unknown. The ticket must cover the job's time limit. Without a limit, it must cover half the life of the first
    tokens, when newer tokens are sent.
    """
    limit = job.timeouts.lifetime
    needed = (token.id.issued_ms + token.id.latest_ms) / 2000 if limit is None else time.time() + limit
    if until is not None and until < needed:
        log.warning(
            "This worker's Kerberos ticket expires at %s, and cannot be renewed any longer. Without another ticket, "
            "Airflow can neither monitor the job nor send newer HDFS tokens, although the job may run until %s or "
            "longer; keep `airflow kerberos` running, or set a `master_keytab` in the connection",
            moment(int(until * 1000)),
            moment(int(needed * 1000)),
        )


ACTION = "tokens"


def refresh_store_tokens(opened: OpenCluster, application_dir: str, application_id: str) -> TokenLife | None:
    """Send newer tokens to the master of a running application; return how long the store's token lives.

    Return None if the store uses no tokens. The application's tokens for other servers are also sent. If one of these
    cannot be fetched, its error is raised after the remaining tokens were sent. Raises ClusterError, StorageError.
    Cancels tokens that could not be delivered.
    """
    if opened.tokens is None:
        return None
    refuse_plain_http(opened.settings)
    about = read_master_contact(opened.storage, application_dir)
    newer = opened.tokens.newer(about.others)
    try:
        ask = partial(opened.cluster.control, application_id, ACTION)
        life = load_json(send_sealed(ask, application_id, about.authority, _order(newer.token)), TokenLife)
    except CodecError as error:
        raise UnexpectedAnswer(f"{application_id}: its master answered a token with {error}") from error
    except ClusterError:
        opened.tokens.cancel(newer.token)
        raise
    for problem in newer.problems:
        raise problem
    return life


def _order(token: StoreToken) -> bytes:
    """Encode the token without empty keys, because masters of older releases know only a single token."""
    plain = to_plain(token)
    return json.dumps({key: value for key, value in plain.items() if value != []}).encode()
