"""``airflow tony checkpoint``: copy a checkpoint of a job to a local directory."""

from __future__ import annotations

import threading
from argparse import Namespace
from pathlib import Path

from tony_provider.cli.command import command
from tony_provider.cli.named import application_of, hook_of
from tony_provider.cli.printing import say
from tony_provider.cluster.checkpoint_chains import CheckpointChains, kept_checkpoints
from tony_provider.runtime.checkpoint.errors import DamagedCheckpoint
from tony_provider.runtime.checkpoint.restore import copy_checkpoint


@command
def checkpoint(args: Namespace) -> None:
    """Copy the files of a checkpoint, as the task with this rank finds them. The directory must not exist yet."""
    directory = Path(args.directory).absolute()
    if directory.exists():
        raise SystemExit(f"{directory} already exists; name a directory that the command can create")
    if not directory.parent.is_dir():
        raise SystemExit(f"there is no directory {directory.parent}")
    with hook_of(args) as hook:
        found = application_of(hook, args)
        storage = hook.storage()
        chains = CheckpointChains(storage, hook.layout, found.identity) if found.identity else None
        chain = chains.used_by(found.application_id) if chains else None
        kept = kept_checkpoints(storage, chain.uri) if chain else []
        wanted = [each for each in kept if args.snapshot in (None, each.number)]
        if not wanted or chain is None:
            which = "checkpoint" if args.snapshot is None else f"snapshot {args.snapshot}"
            labels = f"; it has {', '.join(each.label for each in kept)}" if kept else ""
            raise SystemExit(f"{found.application_id} has no {which} in the storage{labels}")
        uri = chain.uri if args.snapshot is None else wanted[0].uri
        try:
            point = copy_checkpoint(storage, uri, directory, args.rank, threading.Event())
        except DamagedCheckpoint as error:
            raise SystemExit(str(error)) from error
        say(f"{directory} holds {point.label}")
