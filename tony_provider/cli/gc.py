"""``airflow tony gc``: remove what old trainings have left in the staging directory."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.progress import track

from tony_provider.cli.command import command
from tony_provider.cli.named import hook_of
from tony_provider.cli.printing import print_rows, say
from tony_provider.cli.times import seconds_of, since
from tony_provider.cluster.environments.old_environments import OldEnvironment
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.garbage import Garbage, GarbageItem, RemovedGarbage
from tony_provider.runtime.quantities import size
from tony_provider.runtime.storage.base import FileStatus
from tony_provider.runtime.storage.errors import StorageError

_Sized = GarbageItem | OldEnvironment | FileStatus


@command
def gc(args: Namespace) -> None:
    """The command. Lists what would go; with ``--yes`` removes it. Exits with 1 when something could not be removed."""
    before_ms = _before("--older-than", args.older_than)
    history_ms = _before("--keep-history", args.keep_history) if args.keep_history else None
    with hook_of(args) as hook:
        garbage = hook.garbage(args.models or [], history_ms=history_ms)
        environments = hook.old_environments()
        items = garbage.look(before_ms)
        old = environments.look(before_ms)
        unused = [each for each in old if not each.spared]
        going = [item for item in items if not item.spared]
        leftovers = [each for each in garbage.leftovers() if not _is_in(each, going)]
        if args.dry_run or not args.yes:
            rows = [*map(_row, items), *map(_environment_row, old), *map(_leftover_row, leftovers)]
            _show(args, rows)
            if not rows:
                _say(args, f"Nothing in the staging directory has been unchanged for {args.older_than}")
            stay = len(items) - len(going) + len(old) - len(unused)
            told = f"{_sum([*going, *unused, *leftovers])} would be removed with --yes; {stay} old ones stay"
            _say(args, told)
            return
        removed, error = _remove(args, garbage, going, before_ms)
        swept = [] if error else [(each, garbage.remove_leftover(each)) for each in leftovers]
        pruned = [] if error else [(each, environments.remove(each, before_ms)) for each in unused]
    rows = [{**_row(each.item), "outcome": each.problem or "removed"} for each in removed]
    rows += [{**_leftover_row(each), "outcome": problem or "removed"} for each, problem in swept]
    rows += [{**_environment_row(each), "outcome": problem or "removed"} for each, problem in pruned]
    _show(args, rows)
    outcomes: list[tuple[_Sized, str]] = [*((each.item, each.problem) for each in removed), *swept, *pruned]
    _say(args, f"{_sum([each for each, problem in outcomes if not problem])} removed")
    if error is not None:
        raise error
    if left := sum(1 for _, problem in outcomes if problem):
        raise SystemExit(f"{left} of {len(rows)} could not be removed, or stay after another look")


def _before(option: str, text: str) -> int:
    """Milliseconds since the epoch."""
    return int((time.time() - seconds_of(option, text)) * 1000)


def _show(args: Namespace, rows: Sequence[Mapping[str, object]]) -> None:
    if rows or args.output != "table":
        print_rows(rows, args.output, whole=True)


def _remove(
    args: Namespace, garbage: Garbage, going: Sequence[GarbageItem], before_ms: int
) -> tuple[list[RemovedGarbage], BaseException | None]:
    """What was done until the end, or the error that came before it: what has gone is told all the same."""
    removing: Iterable[RemovedGarbage] = garbage.remove(going, before_ms)
    if args.output == "table":
        console = Console(stderr=True)
        removing = track(removing, "Removing", total=len(going), console=console, disable=not console.is_terminal)
    removed: list[RemovedGarbage] = []
    try:
        removed.extend(removing)
    except (ClusterError, StorageError, KeyboardInterrupt) as error:
        return removed, error
    return removed, None


def _row(item: GarbageItem) -> dict[str, str]:
    return {
        "what": f"{item.kind.value}, not its history" if item.keeps_history else item.kind.value,
        "directory": item.uri,
        "size": size(item.size),
        "unchanged for": since(item.newest_ms),
        "stays because": item.spared,
    }


def _leftover_row(leftover: FileStatus) -> dict[str, str]:
    return {
        "what": "half-written",
        "directory": leftover.path,
        "size": size(leftover.size),
        "unchanged for": since(leftover.modified_ms),
        "stays because": "",
    }


def _environment_row(item: OldEnvironment) -> dict[str, str]:
    return {
        "what": "environment",
        "directory": item.uri,
        "size": size(item.size),
        "unchanged for": since(item.used_ms),
        "stays because": item.spared,
    }


def _is_in(leftover: FileStatus, items: Sequence[GarbageItem]) -> bool:
    """Whether it goes with one of these."""
    return any(leftover.path.startswith(f"{item.uri}/") for item in items)


def _sum(items: Sequence[_Sized]) -> str:
    return f"{len(items)} ({size(sum(each.size for each in items))})"


def _say(args: Namespace, text: str) -> None:
    if args.output == "table":
        say(text)
