"""The result of an application master that its cluster takes away.

Whether that is the end of the job, or another master goes on with it, this one cannot know. So it leaves a result, in
case, and no other trace of an end: one that goes on finds the job's status at odds with that result, and removes it.
"""

from __future__ import annotations

from tony_provider.runtime.am.master import Master
from tony_provider.runtime.am.records import Records
from tony_provider.runtime.am.session import snapshot
from tony_provider.runtime.am.session.actions import Verdict
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus


async def write(master: Master, records: Records, reason: str, *, in_haste: bool = False) -> None:
    """Raises SupersededError, having written nothing, when a newer application master is known of.

    ``in_haste``: there is no time to ask the store about that.
    """
    if not in_haste:
        await master.check_newest()
    killed = Verdict(FinalStatus.KILLED, reason, Failure(FailureKind.KILLED, reason))
    await records.write_result_only(snapshot.final_status(master.status(), master.session.verdict or killed))
