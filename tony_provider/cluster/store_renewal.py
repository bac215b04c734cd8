"""Newer tokens of the store for an application that runs, on clusters with Kerberos.

The ResourceManager renews the token that an application was submitted with, up to HDFS's limit: seven days by default.
Who has a Kerberos ticket, as the Airflow side has, can bring a newer one at any time.
"""

from __future__ import annotations

from functools import partial

from tony_provider.cluster.base import CONTROL_SECONDS
from tony_provider.cluster.errors import ClusterError, UnexpectedAnswer
from tony_provider.cluster.open import OpenCluster
from tony_provider.cluster.plain_http import refuse_plain_http
from tony_provider.cluster.sealed_control import send_sealed
from tony_provider.runtime import contract
from tony_provider.runtime.codec import CodecError, dump_json, load_json
from tony_provider.runtime.foreign_json import ForeignJsonError, read_json
from tony_provider.runtime.most_bytes import APPLICATION
from tony_provider.runtime.protocol.token_life import TokenLife
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.helpers import read_whole

ACTION = "tokens"


def renew_store_token(
    opened: OpenCluster, application_dir: str, application_id: str, *, seconds: float = CONTROL_SECONDS
) -> TokenLife | None:
    """Bring the master of a running application a newer token of its store; returns how long that holds.

    None: the store asks for none. Raises ClusterError, StorageError; a token that is not taken is cancelled.
    """
    if opened.tokens is None:
        return None
    refuse_plain_http(opened.settings)
    authority = _authority(opened, application_dir)
    token = opened.tokens.newer()
    try:
        ask = partial(opened.cluster.control, application_id, ACTION, seconds=seconds)
        answer = send_sealed(ask, application_id, authority, dump_json(token))
        return load_json(answer, TokenLife)
    except CodecError as error:
        raise UnexpectedAnswer(f"{application_id}: its master answers a token with {error}") from error
    except ClusterError:
        opened.tokens.cancel(token.text)
        raise


def _authority(opened: OpenCluster, application_dir: str) -> str:
    """Whose certificate vouches for the application's master, as its submission wrote it down."""
    uri = uris.join(application_dir, contract.LAUNCH_DIR, contract.APPLICATION_FILE)
    try:
        return str(read_json(read_whole(opened.storage, uri, APPLICATION))["authority"])
    except (ForeignJsonError, KeyError, TypeError) as error:
        raise UnexpectedAnswer(f"{uri} does not name the application's authority: it is of an older release") from error
