"""What the submission of an application wrote down of it for those who speak to its master."""

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
from tony_provider.cluster.interface import CONTROL_SECONDS
from tony_provider.cluster.open_cluster import OpenCluster
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import APPLICATION_LIMIT, BoundedJsonError, read_json
from tony_provider.runtime.common.clock import moment
from tony_provider.runtime.common.codec import CodecError, from_plain, load_json, to_plain
from tony_provider.runtime.common.quantities import span
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.protocol.http_messages import SealedPart
from tony_provider.runtime.protocol.sealed_tls import PipeError, TlsPipe, client_context
from tony_provider.runtime.protocol.status import TokenLife
from tony_provider.runtime.protocol.store_tokens import StoreToken
from tony_provider.runtime.storage import Storage, uris
from tony_provider.runtime.storage.base import read_whole


@attrs.frozen
class MasterContact:
    """The part of an application's description that its master is spoken to with."""

    authority: str  # whose certificate vouches for the application's master
    others: frozenset[str]  # the names of the tokens that it has beside the store's


def read_master_contact(storage: Storage, application_dir: str) -> MasterContact:
    """As the store has it while the application runs. Raises UnexpectedAnswer, StorageError."""
    uri = uris.join(application_dir, contract.LAUNCH_DIR, contract.APPLICATION_FILE)
    try:
        found = read_json(read_whole(storage, uri, APPLICATION_LIMIT))
        others = [*(str(each["name"]) for each in found.get("other_hdfs", [])), found.get("key_server", "")]
        return MasterContact(str(found["authority"]), frozenset(filter(None, others)))
    except (BoundedJsonError, KeyError, TypeError, AttributeError) as error:
        raise UnexpectedAnswer(f"{uri} does not name the application's authority: it is of an older release") from error


_MOST_PARTS = 6  # TLS 1.3 takes two


def send_sealed(
    ask: Callable[[dict[str, Any]], dict[str, Any]], application_id: str, authority: str, order: bytes
) -> bytes:
    """The answer of the master of a running application to an order that only it can read.

    ``ask``: brings the master the body of one request, and returns its answer; it is called twice. ``authority``: PEM,
    the certificate that vouches for the master.

    Raises UnexpectedAnswer where somebody else answers, or the order is not taken; as ``ask``.
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
    raise UnexpectedAnswer(f"{application_id}: its master does not come to an end")


def _data(answer: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(from_plain(answer, SealedPart).data, validate=True)
    except (CodecError, binascii.Error) as error:
        raise UnexpectedAnswer(f"the application's master answers with what is no sealed part: {error}") from error


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


def warn_of_short_ticket(until: float | None, token: StoreToken, job: JobSpec) -> None:
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


ACTION = "tokens"


def renew_store_token(
    opened: OpenCluster, application_dir: str, application_id: str, *, seconds: float = CONTROL_SECONDS
) -> TokenLife | None:
    """Bring the master of a running application a newer token of its store; returns how long that holds.

    With it come those of what the application names beside its store, as far as they can be had: what could not be is
    raised once the others are there. None: the store asks for none. Raises ClusterError, StorageError; tokens that are
    not taken are cancelled.
    """
    if opened.tokens is None:
        return None
    refuse_plain_http(opened.settings)
    about = read_master_contact(opened.storage, application_dir)
    newer = opened.tokens.newer(about.others)
    try:
        ask = partial(opened.cluster.control, application_id, ACTION, seconds=seconds)
        life = load_json(send_sealed(ask, application_id, about.authority, _order(newer.token)), TokenLife)
    except CodecError as error:
        raise UnexpectedAnswer(f"{application_id}: its master answers a token with {error}") from error
    except ClusterError:
        opened.tokens.cancel(newer.token)
        raise
    for problem in newer.problems:
        raise problem
    return life


def _order(token: StoreToken) -> bytes:
    """As masters of older releases know it, too, which have one token each."""
    plain = to_plain(token)
    return json.dumps({key: value for key, value in plain.items() if value != []}).encode()
