"""What a job will do, in lines: when its task types begin, which ranks they have, and what and how much they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tony_provider.cluster.input_figures import Amount, InputFigures
from tony_provider.runtime.frameworks.base import TaskAddress
from tony_provider.runtime.quantities import count, size
from tony_provider.runtime.ranks import in_cluster, ranks
from tony_provider.runtime.spec.model import GrowRule, InputDeal, JobSpec, Milestone, OutputCommit, StartRule

_FAR_ENOUGH = {
    Milestone.STARTED: "has started",
    Milestone.READY: "is ready",
    Milestone.SUCCEEDED: "has succeeded",
}
_DEALS = {
    InputDeal.STATIC: "a part for each task",
    InputDeal.QUEUE: "one shard after the other, to whoever is free",
}
_COMMITS = {
    OutputCommit.JOB: "all at once when the job has succeeded",
    OutputCommit.TASK: "each task's part when it has succeeded",
}


def plan(job: JobSpec, figures: Mapping[str, InputFigures | str]) -> Iterator[str]:
    """One line for each task type, then one for each input and output, and for when the job has containers.

    ``figures`` of the inputs, or why there are none.
    """
    found = _ranks(job)
    for task_type, task in job.tasks.items():
        said = [f"{count(task.instances, 'container')}"]
        if task.max_instances is not None:
            by_itself = ", and takes what the queue has to spare" if task.grow is GrowRule.SPARE else ""
            said.append(f"may be resized to {task.max_instances}{by_itself}")
        if task.process_count > 1:
            said.append(f"{task.process_count} processes in each")
        if in_cluster(job.role(task_type)):
            first, last = found[task_type]
            said.append(f"rank {first}" if first == last else f"ranks {first} to {last}")
        yield f"{task_type}: {', '.join(said)}; {_begins(job, task_type)}"
    for name, spec in job.inputs.items():
        pieces = "" if spec.split_size is None else f", in pieces of {size(spec.split_size << 20)}"
        readers = ", ".join(job.readers(name))
        yield f"input {name}: {_holds(figures[name])}; {_DEALS[spec.deal]}{pieces}; read by {readers}"
    for name, output in job.outputs.items():
        yield f"output {name}: {output.path}, {_COMMITS[output.commit]}; written by {', '.join(job.writers(name))}"
    if job.windows:
        yield f"windows: {', '.join(job.windows.open)} ({job.windows.zone}); suspended outside of these hours"


def _holds(figures: InputFigures | str) -> str:
    if isinstance(figures, str):
        return f"not known how much ({figures})"
    if figures.smallest is None or figures.largest is None:
        return _amount(figures.total)
    return f"{_amount(figures.total)}, in parts of {_amount(figures.smallest)} to {_amount(figures.largest)}"


def _amount(amount: Amount) -> str:
    return f"{count(amount.shards, 'shard')} ({size(amount.size)})"


def _ranks(job: JobSpec) -> dict[str, tuple[int, int]]:
    """The lowest and the highest rank of each type that has any."""
    processes = [
        TaskAddress(task_type, index, job.role(task_type))
        for task_type, task in job.tasks.items()
        for index in range(task.instances * task.process_count)
    ]
    by_type: dict[str, list[int]] = {}
    for (task_type, _), rank in ranks(processes).items():
        by_type.setdefault(task_type, []).append(rank)
    return {task_type: (min(each), max(each)) for task_type, each in by_type.items()}


def _begins(job: JobSpec, task_type: str) -> str:
    after = [f"{other} {_FAR_ENOUGH[milestone]}" for other, milestone in job.waits_for(task_type).items()]
    when = f"when {' and '.join(after)}" if after else "at once"
    if job.start is StartRule.FIRST_COME:
        return f"each begins {when}, as soon as its container is there"
    return f"begins {when}"
