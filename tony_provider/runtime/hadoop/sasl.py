"""Authentication of a connection by a token: Hadoop's SASL messages around DIGEST-MD5.

The exchange, as org.apache.hadoop.security.SaslRpcClient and SaslRpcServer have it: NEGOTIATE; the server offers
methods with a challenge; INITIATE with the answer and the chosen method; perhaps CHALLENGE and RESPONSE; SUCCESS with
the server's proof.
"""

from __future__ import annotations

import base64
from typing import Optional

from tony_provider.runtime.hadoop.digest_md5 import STRONGEST_FIRST, DigestMd5Client, SecurityLayer
from tony_provider.runtime.hadoop.errors import RpcAuthenticationError, RpcProtocolError
from tony_provider.runtime.hadoop.proto.rpc_pb2 import RpcSaslProto
from tony_provider.runtime.hadoop.tokens import Token

_METHOD, _MECHANISM = "TOKEN", "DIGEST-MD5"


def start() -> RpcSaslProto:
    """The client's first message."""
    return RpcSaslProto(state=RpcSaslProto.NEGOTIATE)


class TokenAuthentication:
    """The client's part of one exchange; no I/O.

    Give each of the server's messages to ``step`` until it returns None.
    """

    def __init__(self, token: Token, *, accepted: tuple[str, ...] = STRONGEST_FIRST) -> None:
        self._token = token
        self._accepted = accepted
        self._digest: Optional[DigestMd5Client] = None
        self._responded = False

    def step(self, message: RpcSaslProto) -> Optional[RpcSaslProto]:
        """The answer to a message of the server's, or None after success.

        Raises RpcProtocolError, RpcAuthenticationError.
        """
        if message.state == RpcSaslProto.NEGOTIATE and self._digest is None:
            return self._initiate(message)
        if message.state == RpcSaslProto.CHALLENGE and self._digest is not None and not self._responded:
            return RpcSaslProto(state=RpcSaslProto.RESPONSE, token=self._respond(self._digest, message.token))
        if message.state == RpcSaslProto.SUCCESS and self._digest is not None and self._responded:
            self._digest.verify(message.token)
            return None
        if message.state == RpcSaslProto.SUCCESS:
            raise RpcAuthenticationError("the server wants no authentication: not the one that the token is for")
        raise RpcProtocolError(f"SASL message {RpcSaslProto.SaslState.Name(message.state)} out of turn")

    def layer(self) -> Optional[SecurityLayer]:
        """The protection of all that follows, after success; None when there is none."""
        if self._digest is None:
            raise RuntimeError("the exchange has not happened yet")
        return self._digest.layer()

    def _initiate(self, offer: RpcSaslProto) -> RpcSaslProto:
        for auth in offer.auths:
            if (auth.method, auth.mechanism) == (_METHOD, _MECHANISM):
                break
        else:
            methods = ", ".join(f"{auth.method}/{auth.mechanism}" for auth in offer.auths)
            raise RpcAuthenticationError(f"the server takes no tokens, only {methods or 'nothing'}")
        self._digest = DigestMd5Client(
            base64.b64encode(self._token.identifier).decode(),
            base64.b64encode(self._token.password).decode(),
            f"{auth.protocol}/{auth.serverId}",
            accepted=self._accepted,
        )
        chosen = RpcSaslProto.SaslAuth(
            method=auth.method, mechanism=auth.mechanism, protocol=auth.protocol, serverId=auth.serverId
        )
        answer = RpcSaslProto(state=RpcSaslProto.INITIATE, auths=[chosen])
        if auth.HasField("challenge"):
            answer.token = self._respond(self._digest, auth.challenge)
        return answer

    def _respond(self, digest: DigestMd5Client, challenge: bytes) -> bytes:
        self._responded = True
        return digest.respond(challenge)
