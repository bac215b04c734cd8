"""A user's training in small: whether a visitor buys, by logistic regression on made-up visits, in plain Python.

What it does well or badly is in its arguments; seconds stand for the work of a larger model and for slow disks.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import tony_sdk

Visit = tuple[float, float, float, int]
BATCH = 32


def visits(seed: int, number: int) -> list[Visit]:
    """Made-up ones: three features, and whether it ended with an order."""
    chance = random.Random(seed)
    found = []
    for _ in range(number):
        pages, minutes = chance.gauss(0, 1), chance.gauss(0, 1)
        bought = 1.2 * pages - 0.8 * minutes + 0.3 + chance.gauss(0, 1.5) > 0
        found.append((1.0, pages, minutes, int(bought)))
    return found


def probability(weights: list[float], visit: Visit) -> float:
    return 1 / (1 + math.exp(-sum(w * x for w, x in zip(weights, visit[:3], strict=True))))


def loss(weights: list[float], batch: list[Visit]) -> float:
    chances = [(probability(weights, visit), visit[3]) for visit in batch]
    return -sum(math.log(chance if bought else 1 - chance) for chance, bought in chances) / len(batch)


def descend(weights: list[float], batch: list[Visit], rate: float) -> None:
    errors = [(probability(weights, visit) - visit[3], visit) for visit in batch]
    for n in range(len(weights)):
        weights[n] -= rate * sum(error * visit[n] for error, visit in errors) / len(batch)


def batches(ours: argparse.Namespace, data: list[Visit], steps: int) -> Iterator[list[Visit]]:
    chance = random.Random(1)
    for _ in range(steps):
        time.sleep(ours.read)  # a slow disk
        busy_until = time.monotonic() + ours.decode
        while time.monotonic() < busy_until:  # pictures are decoded
            pass
        yield chance.sample(data, BATCH)


def save(weights: list[float], step: int, mebibytes: int) -> None:
    """A checkpoint, with so much of an optimizer's state beside it."""
    folder = Path(tony_sdk.checkpoint_dir() or "out", f"step-{step}")
    folder.mkdir(parents=True)
    (folder / "weights.json").write_text(json.dumps(weights))
    with (folder / "moments").open("wb") as file:
        for _ in range(mebibytes):
            file.write(os.urandom(1 << 20))
    tony_sdk.commit_checkpoint(step, folder)


def restored() -> list[float]:
    found = tony_sdk.resume_from()
    return json.loads(Path(found, "weights.json").read_text()) if found else [0.0, 0.0, 0.0]


def fail_once(marks: str, step: int) -> None:
    """As when a service of others does not answer for a moment: the next start gets beyond this step."""
    mark = Path(marks, f"failed-at-{step}")
    if not mark.exists():
        mark.touch()
        raise ConnectionError(f"the feature store did not answer at step {step}")


def wait_for_all(meeting: str, rank: int, ranks: int, step: int) -> None:
    """As a synchronous training does at the end of each step."""
    place = Path(meeting)
    (place / f"{rank}.{step}").touch()
    while not all((place / f"{each}.{step}").exists() for each in range(ranks)):
        time.sleep(0.005)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    number = {"type": float, "default": 0.0, "metavar": "SECONDS"}
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pace", **number, help="of a step")
    parser.add_argument("--read", **number, help="that a batch takes to be read")
    parser.add_argument("--decode", **number, help="that a batch takes to be decoded, by the processor")
    parser.add_argument("--prepare", **number, help="that the data takes to be prepared")
    parser.add_argument("--rate", type=float, default=0.5, help="learning rate")
    parser.add_argument("--holds", type=int, default=0, metavar="MIB", help="of data in memory")
    parser.add_argument("--evaluate", action="store_true", help="report val_loss, too")
    parser.add_argument("--score", action="store_true", help="report how many rows were scored in place of a loss")
    parser.add_argument("--save-every", type=int, default=0, metavar="STEPS")
    parser.add_argument("--moments", type=int, default=0, metavar="MIB", help="of a checkpoint")
    parser.add_argument("--fail-at", type=int, nargs="*", default=[], metavar="STEP")
    parser.add_argument("--marks", default=".", help="folder that remembers which failures have been")
    parser.add_argument("--slow-rank", type=int, default=-1, help="one that has twice as much to do")
    parser.add_argument("--together", default="", metavar="FOLDER", help="where all ranks wait for each other")
    parser.add_argument("--until", default="", metavar="FILE", help="go on with the last step until it is there")
    return parser.parse_args()


def main() -> None:
    ours, task = arguments(), tony_sdk.task()
    rank, ranks = (task.rank or 0, task.world_size) if task else (0, 1)
    held = b"x" * (ours.holds << 20)
    time.sleep(ours.prepare)
    train, held_out, weights = visits(11, 600), visits(12, 200), restored()
    first = tony_sdk.resume_step()
    pace = ours.pace * (2 if rank == ours.slow_rank else 1)
    steps = tony_sdk.track(batches(ours, train, ours.steps - first), total=ours.steps, start=first)
    for step, batch in enumerate(steps, first + 1):
        if step in ours.fail_at:
            fail_once(ours.marks, step)
        descend(weights, batch, ours.rate)
        time.sleep(pace)
        if ours.together:
            wait_for_all(ours.together, rank, ranks, step)
        if ours.score:
            steps.report(rows=step * BATCH)
        else:
            steps.report(loss=loss(weights, batch))
        if ours.evaluate and step % 10 == 0:
            steps.report(val_loss=loss(weights, held_out))
        if rank == 0 and ours.save_every and step % ours.save_every == 0:
            save(weights, step, ours.moments)
    while ours.until and not Path(ours.until).exists():
        time.sleep(0.2)
    sys.stdout.write(f"trained {ours.steps} steps with {len(held) >> 20} MiB of data in memory\n")


if __name__ == "__main__":
    main()
