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
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.garbage import Garbage, GarbageItem, RemovedGarbage
from tony_provider.runtime.quantities import size
from tony_provider.runtime.storage.base import FileStatus
from tony_provider.runtime.storage.errors import StorageError


@command
def gc(args: Namespace) -> None:
    """The command. Lists what would go; with ``--yes`` removes it. Exits with 1 when something could not be removed."""
    before_ms = _before("--older-than", args.older_than)
    history_ms = _before("--keep-history", args.keep_history) if args.keep_history else None
    with hook_of(args) as hook:
        garbage = hook.garbage(args.models or [], history_ms=history_ms)
        items = garbage.look(before_ms)
        going = [item for item in items if not item.spared]
        leftovers = [each for each in garbage.leftovers() if not _is_in(each, going)]
        if args.dry_run or not args.yes:
            rows = [*map(_row, items), *map(_leftover_row, leftovers)]
            _show(args, rows)
            if not rows:
                _say(args, f"Nothing in the staging directory has been unchanged for {args.older_than}")
            told = f"{_sum(going, leftovers)} would be removed with --yes; {len(items) - len(going)} old ones stay"
            _say(args, told)
            return
        removed, error = _remove(args, garbage, going, before_ms)
        swept = [] if error else [(each, garbage.remove_leftover(each)) for each in leftovers]
    rows = [{**_row(each.item), "outcome": each.problem or "removed"} for each in removed]
    rows += [{**_leftover_row(each), "outcome": problem or "removed"} for each, problem in swept]
    _show(args, rows)
    gone = [each.item for each in removed if not each.problem]
    left = [each for each in removed if each.problem] + [each for each, problem in swept if problem]
    _say(args, f"{_sum(gone, [each for each, problem in swept if not problem])} removed")
    if error is not None:
        raise error
    if left:
        raise SystemExit(f"{len(left)} of {len(rows)} could not be removed, or stay after another look")


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


def _is_in(leftover: FileStatus, items: Sequence[GarbageItem]) -> bool:
    """Whether it goes with one of these."""
    return any(leftover.path.startswith(f"{item.uri}/") for item in items)


def _sum(items: Sequence[GarbageItem], leftovers: Sequence[FileStatus]) -> str:
    sizes = [*(item.size for item in items), *(each.size for each in leftovers)]
    return f"{len(sizes)} ({size(sum(sizes))})"


def _say(args: Namespace, text: str) -> None:
    if args.output == "table":
        say(text)
