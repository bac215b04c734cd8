"""``PUT control/tokens``: the Airflow side brings a newer token of the store, sealed."""

from __future__ import annotations

import logging
import ssl
from functools import partial
from http import HTTPStatus
from typing import Optional

from tony_provider.runtime.am.store_access import StoreAccess, TokenRefusedError
from tony_provider.runtime.am.web.http_messages import HttpError
from tony_provider.runtime.am.web.router import AccessType, Route
from tony_provider.runtime.am.web.sealed_orders import SealedOrders
from tony_provider.runtime.codec import CodecError, dump_json, load_json
from tony_provider.runtime.protocol.store_token import StoreToken

log = logging.getLogger(__name__)

PATH = "/control/tokens"


def token_route(access: StoreAccess, context: ssl.SSLContext) -> Optional[Route]:
    """``context``: of the master's end of sealed conversations. None: the store asks for no token."""
    if access.life is None:
        return None
    orders = SealedOrders(context, partial(_obey, access))
    return Route("PUT", PATH, AccessType.MODIFY, orders.put)


async def _obey(access: StoreAccess, user: str, order: bytes) -> bytes:
    try:
        token = load_json(order, StoreToken)
        log.info("%r brings a token of the store", user)
        return dump_json(await access.take(token))
    except (CodecError, TokenRefusedError) as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from error
