"""A daemon that is away for a while: what the log of the task that waits says meanwhile."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from tests.faults.account import Account
from tests.faults.field import Field
from tests.faults.rows.process import HIT_AT
from tests.faults.tries import Tries
from tests.waiting import until

AWAY = 45.0  # seconds
PACE = 1.0  # seconds that a step takes meanwhile


def away_for_a_while(
    field: Field, who: str, *, away: Callable[[], None], back: Callable[[], None], deferrable: bool
) -> Account:
    """``who``: what the log calls it."""
    tries = Tries(field)
    attempt = tries.begin(tries.job(pace=PACE), deferrable=deferrable)
    training = tries.training()
    training.until_step(HIT_AT // 2)
    with training.hit():
        away()
    began, over = f"{who} does not answer since ", f"{who} answers again, after "
    until(lambda: began in attempt.said(), lambda: f"{began}\n{attempt.said()[-3000:]}", AWAY)
    time.sleep(max(0.0, training.hits[-1] + AWAY - time.time()))  # the fault is that it takes so long
    back()
    until(lambda: over in attempt.said(), lambda: f"{over}\n{attempt.said()[-3000:]}", AWAY)
    training.hurry()
    told = attempt.result()
    account = training.finish()
    account.expect(told["state"] == "success", f"the task: {told['error']}")
    account.expect(len(training.diary.entries("started")) == len(training.gang), "user processes were started again")
    lines = [line for line in attempt.said().splitlines() if re.search(f"{who} (does not answer|answers again)", line)]
    account.expect(len(lines) <= 4, f"the log says it too often: {lines}")
    account.did = "; ".join(line[line.index(who) :].partition(" [")[0] for line in lines)
    return account
