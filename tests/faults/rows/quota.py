"""The training's quota on the store is used up: what was trained is not trained again for that."""

from __future__ import annotations

from tests.faults.account import Account
from tests.faults.field import Field
from tests.faults.row import COUNT, row
from tests.faults.rows.process import HIT_AT
from tests.faults.training import END_SECONDS, Training
from tests.waiting import until
from tony_provider.runtime.storage.uris import parent

SAVES = "the newest checkpoint is not stored yet"
KEEPS = "cannot upload the results to the store, retrying for"


@row("quota-at-model", "quota used up when the model is to be kept, and raised after a while", program=COUNT)
def quota_at_model(field: Field) -> Account:
    """The process has ended well: its model waits in the container."""
    training = field.train(checkpoint={"mirror": "off"})
    training.until_step(HIT_AT)
    with training.hit():
        _set_quota(field, training, 1)
    training.hurry()
    training.until(lambda: KEEPS in training.container_logs(), "the model to be refused")
    _set_quota(field, training, -1)
    return _trained_once(training, training.finish())


@row("quota-at-model-stays", "quota used up when the model is to be kept, and not raised", program=COUNT)
def quota_at_model_stays(field: Field) -> Account:
    """The job ends with that cause, says where the files are, and has trained once."""
    training = field.train(checkpoint={"mirror": "off"}, timeouts={"grace": "5s", "upload": "5s"})
    return _ends_with_that(field, training)


@row("quota-at-checkpoint", "quota used up at a checkpoint, and raised after a while", program=COUNT)
def quota_at_checkpoint(field: Field) -> Account:
    """The training goes on meanwhile, and what it saved last gets there."""
    training = field.train(pace=0.4)
    training.until_committed(10)
    with training.hit():
        _set_quota(field, training, 1)
    training.until(lambda: SAVES in training.container_logs(), "a checkpoint to be refused")
    _set_quota(field, training, -1)
    training.hurry()
    account = _trained_once(training, training.finish())
    status = training.job.status()
    account.expect(status.checkpoint_step == 60, f"the newest checkpoint is that of step {status.checkpoint_step}")
    account.expect(not status.warnings, f"it ended with warnings: {status.warnings}")
    return account


@row("quota-at-checkpoint-stays", "quota used up at a checkpoint, and not raised", program=COUNT)
def quota_at_checkpoint_stays(field: Field) -> Account:
    """It trains to its end; then neither its last checkpoint nor its model can be kept."""
    training = field.train(timeouts={"grace": "5s", "checkpoint": "5s", "upload": "5s"})
    training.until_committed(10)
    return _ends_with_that(field, training)


def _ends_with_that(field: Field, training: Training) -> Account:
    training.until_step(HIT_AT)
    field.at_end(lambda: _set_quota(field, training, -1))
    with training.hit():
        _set_quota(field, training, 1)
    training.hurry()
    application = until(
        lambda: found if (found := training.job.application()).is_final else None, training.job.describe, END_SECONDS
    )
    account = Account(did="ended, and said where the files are")
    said = application.diagnostics
    for words in ("has succeeded, but its results could not be uploaded", "quota", "tony-work on "):
        account.expect(words in said, f"the diagnostics do not say {words!r}: {said}")
    account.problems += [each for each in training.left() if each != "staging left"]  # the quota holds it up, too
    return _trained_once(training, account)


def _trained_once(training: Training, account: Account) -> Account:
    starts = len(training.diary.entries("started"))
    account.expect(starts == len(training.gang), f"{starts} processes were started")
    return account


def _set_quota(field: Field, training: Training, count: int) -> None:
    """Of bytes, for all that this training has on the store; -1: none."""
    field.hadoop.services.set_quota(parent(parent(training.job.directory)), storagespacequota=count)
