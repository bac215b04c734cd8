"""More jobs than a queue has room for."""

from __future__ import annotations

from tests.faults.account import Account
from tests.faults.field import Field
from tests.faults.row import COUNT, row
from tests.faults.training import applications
from tests.faults.tries import Tries

GANGS = 6
QUEUE = "small"  # of 20 % of 12 GiB, half of which may be masters: four of them, and then the workers of one gang
MEMORY = "400MiB"


@row("six-gangs", "6 gangs in a queue for 2", COUNT)
def six_gangs(field: Field) -> Account:
    """All at once, from six Airflow tasks without retries: each trains once, none waits for ever."""
    everyone = [Tries(field) for _ in range(GANGS)]
    timeouts = {"grace": "5s", "allocation": "15s"}
    running = [tries.begin(tries.job(memory=MEMORY, queue=QUEUE, timeouts=timeouts), retries=0) for tries in everyone]
    told = [attempt.result() for attempt in running]
    account = Account(did=f"{sum(each['state'] == 'success' for each in told)} of {GANGS} tasks succeeded")
    for tries, each in zip(everyone, told, strict=True):
        account.expect(each["state"] == "success", f"{tries.dag_id}: {each['error']}")
        account.expect(len(applications(field.hadoop, tries.identity.tag)) == 1, f"{tries.dag_id}: submitted again")
        # A gang that gets one of its two containers in time gives it back, and gets another one later.
        account.problems += tries.training().finish(replaced=None).problems
    return account
