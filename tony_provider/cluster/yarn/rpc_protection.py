"""What application masters must insist on when they speak to YARN, by the ResourceManager's own settings."""

from __future__ import annotations

from tony_provider.cluster.errors import ConfigurationHidden
from tony_provider.cluster.yarn.rest import YarnRest

_RESOLVER = "hadoop.security.saslproperties.resolver.class"


def rpc_protection(rest: YarnRest) -> str:
    """``hadoop.rpc.protection``; empty where it is hidden, or a class of the cluster's decides client by client."""
    try:
        return "" if rest.setting(_RESOLVER) else rest.setting("hadoop.rpc.protection") or ""
    except ConfigurationHidden:
        return ""
