"""The part of one container in the job's event files: it keeps those that it writes, or shows those of all."""

from __future__ import annotations

from tony_provider.runtime import contract
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.tensorboard.gatherer import Gatherer
from tony_provider.runtime.executor.tensorboard.keeper import Keeper
from tony_provider.runtime.executor.tensorboard.rounds import Rounds
from tony_provider.runtime.storage import uris


def event_files(context: ExecutorContext) -> Rounds:
    """What this container does with event files, round by round. Made within a running event loop."""
    container, directory = context.container, context.workspace.tensorboard
    description = container.description
    everything = uris.join(description.chain_dir or description.application_dir, contract.TENSORBOARD_DIR)
    if container.shows_tensorboard:
        return Gatherer(context.storage, everything, directory)
    return Keeper(context.storage, directory, uris.join(everything, contract.path_of_task(container.identity.task)))
