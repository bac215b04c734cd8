"""Delegation tokens as a NameNode would give them; nobody has signed these."""

from __future__ import annotations

from tony_provider.runtime.hadoop.tokens import WEBHDFS_TOKEN, DelegationTokenId, Token, encode_text, encode_vlong
from tony_provider.runtime.protocol.store_tokens import StoreToken


def written(token: DelegationTokenId) -> bytes:
    texts = b"".join(map(encode_text, (token.owner, token.renewer, token.real_user)))
    return b"\0" + texts + b"".join(map(encode_vlong, (token.issued_ms, token.latest_ms, token.number)))


def made(number: int, issued_ms: int, latest_ms: int, owner: str = "alice@TONY.TEST") -> StoreToken:
    about = DelegationTokenId(owner, "yarn", "", issued_ms, latest_ms, number)
    return StoreToken(Token(written(about), b"password", WEBHDFS_TOKEN).to_url_string(), latest_ms)
