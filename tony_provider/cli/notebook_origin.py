"""What a notebook is made of: a job's file, or an application that was submitted before."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from tony_provider.cli.job_file import file_roots, overrides_of, read_job, search_path, typed_files
from tony_provider.cli.named import NotFound, applications_of, identity_of
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.spec.model import JobSpec


@attrs.frozen
class NotebookOrigin:
    """A job, and what a notebook of it begins with."""

    job: JobSpec
    overrides: Mapping[str, Any]  # laid over the notebook's job
    search_path: Sequence[Path] = ()  # where files that the job names are looked for
    file_roots: Sequence[Path] = ()  # further places where these files may lie
    checkpoint: str | None = None  # URI of the chain whose newest checkpoint it finds
    news: Sequence[str] = ()  # for people


def origin_of(hook: TonyHook, args: Namespace) -> NotebookOrigin | None:
    """Return the job and the checkpoint that the command line names, or None if it names neither.

    With a file and an application, the job is the file's, and the checkpoint is of the application's training.
    Raises NotFound, TonySpecError, SourceMissing, Unconfirmed.
    """
    overrides = overrides_of(args.set or [])
    origin = None
    if args.job:
        file = Namespace(job=args.job, param=args.param)  # what else is given is of the notebook's job
        origin = NotebookOrigin(read_job(file, hook)[0], overrides, search_path(file), file_roots(args))
    elif args.param:
        raise NotFound("--param is for the parameters of a job's file: name the file")
    if not (args.of or args.tag or args.dag_id or args.task_id or args.run_id):
        return origin
    named = Namespace(
        application_ids=[args.of] if args.of else [],
        tag=[args.tag] if args.tag else None,
        dag_id=args.dag_id,
        task_id=args.task_id,
        run_id=[args.run_id] if args.run_id else None,
        map_index=args.map_index,
    )
    found = applications_of(hook, named)
    if len(found) > 1:
        raise NotFound("name one application: by --of, by --tag, or by --dag-id, --task-id and --run-id")
    application_id, identity = found[0].application_id, identity_of(hook, found[0])
    news = []
    if origin is None:
        kept = hook.kept_job(identity, application_id, confirmed=args.yes)
        origin = NotebookOrigin(kept.job, overrides, file_roots=typed_files(args))
        if kept.masked:
            news.append(f"Without {', '.join(kept.masked)}, whose values are not kept: give them by --set env.NAME=…")
        if kept.left_out:
            news.append(
                f"Without {', '.join(kept.left_out)}: the history names a file of this machine. Give your own by "
                "--set KEY=PATH"
            )
    so_far = hook.trained_so_far(identity, application_id)
    if so_far is None:
        news.append(f"{application_id} has no checkpoint yet: the notebook is without one")
        return attrs.evolve(origin, news=news)
    news.append(f"The newest checkpoint of {application_id}, now {so_far.newest.label}, will be in `checkpoint`")
    return attrs.evolve(origin, checkpoint=so_far.chain, news=news)
