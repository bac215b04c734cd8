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
    return _found(hook, application_id or tag, found)


def applications_of(hook: TonyHook, args: Namespace) -> list[ApplicationRef]:
    """All applications that the arguments name: by ids, tags, or a DAG, its task and runs. Raises NotFound."""
    tags = [(tag, tag) for tag in args.tag or []]
    training = (args.dag_id, args.task_id, args.run_id)
    if any(training):
        if not all(training):
            raise NotFound("name a training by all of --dag-id, --task-id and --run-id")
        for run_id in args.run_id:
            which = {"dag_id": args.dag_id, "task_id": args.task_id, "run_id": run_id}
            tag = hook.identity(**which, map_index=args.map_index).tag
            tags.append((tag, f"the task {args.task_id} of {args.dag_id} in the run {run_id}"))
    if not args.application_ids and not tags:
        raise NotFound("name applications: by their ids, by --tag, or by --dag-id, --task-id and --run-id")
    found = [_found(hook, each, hook.application_ref(application_id=each)) for each in args.application_ids]
    return found + [_found(hook, told, hook.application_ref(tag=tag)) for tag, told in tags]


def _found(hook: TonyHook, what: str, found: ApplicationRef | None) -> ApplicationRef:
    if found is None:
        raise NotFound(
            f"neither the cluster nor {hook.layout.root} knows of {what}; `airflow tony list --all` shows what the "
            "cluster does"
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
