"""What tasks make of a training's files when its job has forged them, as with the tokens of ``hadoop: true`` it can.

Before Airflow 3.3 what tries tell each other is among them. An application of another training stands for anybody's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, cast

import attrs
import pytest

from tests.operators.jobs import DEADLINE, Marker, job
from tests.owners import own
from tests.waiting import until
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.training.checkpoint_chains import CheckpointChains, new_chain
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators import try_state
from tony_provider.operators.try_state import StateStore, TaskInstanceInfo, TrainingNotes, TryInfo, remember, remembered
from tony_provider.runtime.checkpoint.stored_checkpoint import OWNERS_DIR
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import write_atomically
from tony_provider.watching.job_poller import JobObservation, JobSearch, JobTarget

LOG = cast(Any, logging.getLogger(__name__))
RUN = TaskInstanceInfo("clicks", "today", "train", try_number=2)


@attrs.frozen
class Forged:
    """A training whose files all name an application of another one, which runs."""

    hook: TonyHook
    identity: Identity
    theirs: Identity
    application_id: str

    @property
    def runs(self) -> bool:
        application = self.hook.application(self.application_id)
        return application is not None and not application.is_final


@pytest.fixture
def forged(local: TonyHook, marker: Marker) -> Iterator[Forged]:
    mine = RUN.identity(local, None)
    theirs = local.identity(dag_id="payroll", run_id="today", task_id="train")
    victim = local.submit(SubmissionRequest(parse_job(job(marker.forever)), theirs)).application_id
    until(marker.path.exists, "the other training's process", DEADLINE)
    chains = CheckpointChains(local.storage(), local.layout, mine)
    uri = chains.uri_after(None)
    chains.open(uri, new_chain())
    own(chains, uri, victim)
    write_atomically(local.storage(), uris.join(local.layout.application_dir(mine, victim), "result.json"), b"{}")
    yield Forged(local, mine, theirs, victim)
    local.kill(victim, "the test is over")


def test_an_application_that_forged_files_name_is_left_alone_by_tasks_and_sensors(
    forged: Forged, older_airflow: None, caplog: pytest.LogCaptureFixture
) -> None:
    hook, victim = forged.hook, forged.application_id
    ref = hook.application_ref(application_id=victim)
    assert ref is not None
    assert ref.identity == forged.theirs

    # Whether a sensor looks at it.
    assert JobSearch(JobTarget(identity=forged.identity)).look(hook) == JobObservation()
    assert f"The store names {victim} as the application with the tag {forged.identity.tag}" in caplog.text

    # Whether to attach to it: by the owner of the chain, and by the notes where there is none.
    store = StateStore(cast(Any, {"ti": None}), LOG, TrainingNotes(hook, lambda: forged.identity))
    remember(store, victim)
    assert hook.previous_application(forged.identity, remembered=remembered(store)) is None
    assert "it does not belong to this training, although the training's owner file names it" in caplog.text
    hook.storage().remove(uris.join(hook.layout.job_dir(forged.identity), OWNERS_DIR), recursive=True)
    assert hook.previous_application(forged.identity, remembered=remembered(store)) is None
    assert "it does not belong to this training, although the Airflow task's state names it" in caplog.text

    # Whether to end it as what a cleared task has left.
    try_state.write_deferral_note(
        store, try_state.DeferralNote(try_id="id-1", max_tries=99, application_id=victim, kill=True)
    )
    try_state.end_abandoned_application(store, try_state.BeginningTry(hook, RUN, TryInfo(2, 1, "id-2"), None), LOG)
    assert "this task did not start it" in caplog.text
    assert forged.runs
