"""Newer tokens of the store for an application that runs, on clusters with Kerberos.

The ResourceManager renews the token that an application was submitted with, up to HDFS's limit: seven days by default.
Who has a Kerberos ticket, as the Airflow side has, can bring a newer one at any time.
"""

from __future__ import annotations

import json
from functools import partial

from tony_provider.cluster.application_about import read_about
from tony_provider.cluster.base import CONTROL_SECONDS
from tony_provider.cluster.errors import ClusterError, UnexpectedAnswer
from tony_provider.cluster.open import OpenCluster
from tony_provider.cluster.plain_http import refuse_plain_http
from tony_provider.cluster.sealed_control import send_sealed
from tony_provider.runtime.codec import CodecError, load_json, to_plain
from tony_provider.runtime.protocol.store_token import StoreToken
from tony_provider.runtime.protocol.token_life import TokenLife

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
    about = read_about(opened.storage, application_dir)
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
