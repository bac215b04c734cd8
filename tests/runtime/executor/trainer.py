"""A training that does what a test tells it, one thing after the other, by files in its working directory.

save STEP [BYTES]   a checkpoint of that step, complete in one moment
report STEP
exit CODE
write NAME TEXT     a file in the checkpoint directory, in place
hold NAME TEXT      the same, and keep it open for writing
close               what it holds open
copy SOURCE NAME    a file from elsewhere to the checkpoint directory, complete in one moment
remove NAME         of that directory
rewrite SIZE        from now on a checkpoint in the same file, again and again
fill                the disk, as a checkpoint that does not fit does
touch NAME          a file in the working directory
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

CHECKPOINTS = Path(os.environ.get("TONY_CHECKPOINT_DIR", ""))
_held: list[IO[str]] = []


def save(step: str, size: str = "1000") -> None:
    import tony_sdk  # type: ignore[import-not-found]  # there inside a job only

    weights = CHECKPOINTS / f"weights-{step}"
    weights.mkdir()
    for part in ("a", "b"):
        (weights / part).write_bytes(content(int(step), part, int(size)))
    tony_sdk.commit_checkpoint(int(step), weights)


def copy(source: str, name: str) -> None:
    shutil.copyfile(source, "copied")
    Path("copied").rename(CHECKPOINTS / name)


def hold(name: str, text: str) -> None:
    _held.append((CHECKPOINTS / name).open("w"))
    _held[-1].write(text)
    _held[-1].flush()


def close() -> None:
    while _held:
        _held.pop().close()


def rewrite(size: str) -> None:
    import tony_sdk

    for step in range(1, 1000):
        (CHECKPOINTS / "weights").write_bytes(content(step, "a", int(size)))
        tony_sdk.commit_checkpoint(step, "weights")
        (CHECKPOINTS / f"step-{step - 1}.tony.json").unlink(missing_ok=True)
        time.sleep(0.3)


def fill() -> None:
    try:
        with (CHECKPOINTS / "too-much").open("wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                pass
    except OSError as error:
        print("cannot save:", error.strerror, file=sys.stderr, flush=True)


def report(step: str) -> None:
    import tony_sdk

    tony_sdk.report(int(step))


def content(step: int, part: str, size: int) -> bytes:
    return (f"{part} of step {step}, ".encode() * size)[:size]


def main() -> None:
    actions: dict[str, Callable[..., object]] = {
        "save": save,
        "report": report,
        "exit": lambda code: sys.exit(int(code)),
        "write": lambda name, text: (CHECKPOINTS / name).write_text(text),
        "hold": hold,
        "close": close,
        "copy": copy,
        "remove": lambda name: (CHECKPOINTS / name).unlink(),
        "rewrite": rewrite,
        "fill": fill,
        "touch": lambda name: Path(name).touch(),
    }
    Path(f"started-{os.environ['TONY_GENERATION']}").touch()
    while True:
        for order in sorted(Path().glob("order-*")):
            action, *given = order.read_text().split(maxsplit=2)
            order.unlink()
            actions[action](*given)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
