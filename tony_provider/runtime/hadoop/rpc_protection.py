"""Which qualities of protection a Hadoop server may be spoken to with, by ``hadoop.rpc.protection``.

The property lists one or several of ``authentication``, ``integrity`` and ``privacy``. A server offers all that it has
listed, in a challenge that nothing protects, and its clients choose of what they have listed themselves
(org.apache.hadoop.security.SaslPropertiesResolver, for both). So the weakest that is listed is what somebody on the way
can bring a connection down to, and no less than that may be taken.
"""

from __future__ import annotations

import re

from tony_provider.runtime.hadoop.digest_md5 import AUTH, AUTH_CONF, AUTH_INT, STRONGEST_FIRST

_QUALITIES = {"authentication": AUTH, "integrity": AUTH_INT, "privacy": AUTH_CONF}


def accepted(listed: str) -> tuple[str, ...]:
    """What is accepted of a server where this is listed, the strongest first: all from the weakest listed upwards.

    Everything, where nothing is listed that Hadoop knows: then it is not known what the cluster wants.
    """
    words = [word.lower() for word in re.split(r"[,\s]+", listed) if word]
    known = [STRONGEST_FIRST.index(_QUALITIES[word]) for word in words if word in _QUALITIES]
    return STRONGEST_FIRST[: max(known) + 1] if known else STRONGEST_FIRST
