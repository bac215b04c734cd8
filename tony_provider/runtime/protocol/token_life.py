"""For how long the token holds by which an application reaches its store."""

from __future__ import annotations

import attrs


@attrs.frozen
class TokenLife:
    """From when until when the token that an application has holds. Epoch milliseconds, by the NameNode's clock."""

    issued_ms: int
    until_ms: int

    @property
    def half_ms(self) -> int:
        """When half of it is over: there is time enough to bring a newer one, and as much again to try."""
        return (self.issued_ms + self.until_ms) // 2

    @property
    def last_quarter_ms(self) -> int:
        """When a quarter of it is left, and nobody has brought a newer one: people are to know."""
        return self.until_ms - (self.until_ms - self.issued_ms) // 4
