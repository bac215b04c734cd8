"""The identifier of an HDFS delegation token: whose it is, and for how long it can be renewed.

Format: org.apache.hadoop.security.token.delegation.AbstractDelegationTokenIdentifier.write. What a newer HDFS may put
after it is left alone.
"""

from __future__ import annotations

import attrs

from tony_provider.runtime.hadoop.errors import CredentialsError
from tony_provider.runtime.hadoop.writable import WritableReader

_VERSION = 0


@attrs.frozen
class DelegationTokenId:
    """What a delegation token says of itself. Times are epoch milliseconds by the NameNode's clock."""

    owner: str  # the principal that it speaks for, as HDFS got it
    renewer: str
    real_user: str  # who has acted for the owner; empty: nobody
    issued_ms: int
    latest_ms: int  # after which nobody can renew it; when it ends before that, only its last renewal told
    number: int  # counts the tokens of a NameNode, or of a pair of them

    @classmethod
    def from_bytes(cls, identifier: bytes) -> DelegationTokenId:
        """Read a token's identifier. Raises CredentialsError."""
        reader = WritableReader(identifier)
        version = reader.take(1)[0]
        if version != _VERSION:
            raise CredentialsError(f"a delegation token of version {version}; {_VERSION} is known")
        return cls(reader.text(), reader.text(), reader.text(), reader.vlong(), reader.vlong(), reader.vlong())
