"""The application that a command's arguments name."""

from __future__ import annotations

from argparse import Namespace

from tony_provider.cluster.application_ref import ApplicationRef
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook


class NotFound(ClusterError):  # noqa: N818 - named for what is wrong
    """The application that a command names does not exist, or nothing of it is in the staging directory."""


def hook_of(args: Namespace) -> TonyHook:
    """The hook for the connection that the command line names."""
    return TonyHook(args.conn_id, args.proxy_user)


def application_of(hook: TonyHook, args: Namespace) -> ApplicationRef:
    """The application that the arguments name, by its id or by its training's tag. Raises NotFound."""
    application_id, tag = args.application_id or "", getattr(args, "tag", None) or ""
    if bool(application_id) == bool(tag):
        raise NotFound("name one application: by its id, or by its training's tag with --tag")
    found = hook.application_ref(application_id=application_id, tag=tag)
    if found is None:
        raise NotFound(
            f"neither the cluster nor {hook.layout.root} knows of {application_id or tag}; `airflow tony list --all` "
            "shows what the cluster does"
        )
    return found


def identity_of(hook: TonyHook, found: ApplicationRef) -> Identity:
    """The identity of the training that the application is of. Raises NotFound where it has no directory."""
    if found.identity is None:
        raise NotFound(
            f"{found.application_id} has no directory in {hook.layout.root}; check that --conn-id names the connection "
            "that it was submitted with"
        )
    return found.identity
