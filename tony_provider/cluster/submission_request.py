"""What is submitted: one object, from whoever asks for a training down to the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from tony_provider.cluster.chain_choice import Resume
from tony_provider.cluster.chain_origin import ChainOrigin
from tony_provider.cluster.identity import Identity
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.training_owner import NO_TRY, WaitingTry


@attrs.frozen
class SubmissionRequest:
    """A job, and what its submission depends on beside it."""

    job: JobSpec
    identity: Identity  # of the training that it belongs to
    # Values of the secrets that the job names; only its user processes see them.
    secrets: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    labels: Mapping[str, str] = attrs.field(factory=dict)  # where it comes from, for its event log (dag, run, try, …)
    search_path: Sequence[Path] = ()  # directories that relative paths of the job are looked for in, in this order
    # Directories in which files of the job may also lie, unless the connection's ``file_roots`` names directories.
    file_roots: Sequence[Path] = attrs.field(factory=tuple, kw_only=True)
    resume: Resume = Resume.AUTO  # whether it goes on in the training's newest checkpoint chain
    origin: ChainOrigin = attrs.field(factory=ChainOrigin)  # what it begins with where it has saved nothing of its own
    given: Mapping[str, Any] | None = (
        None  # the job as it was written, for people who look at it later; None: not known
    )
    overrides: Mapping[str, Any] | None = None  # what was laid over it; the connection's policy says which keys may be
    advice: Mapping[str, Any] | None = None  # what advice has laid over both, likewise
    made: Sequence[Path] = ()  # files that were generated for the submission, so exempt from ``file_roots``
    # Variables of its user processes that say nothing of what is trained, and may differ in each try; the job's ``env``
    # goes over them.
    environment: Mapping[str, str] = attrs.field(factory=dict)
    # The number of the training's owner that the submitter has seen: if it has another one by then, the submission is
    # refused. None: the owner at the time when the submission begins.
    after_owner: int | None = None
    whose: WaitingTry = NO_TRY  # the try that submits it
    watched: bool = True  # somebody of ours waits for its end, and brings it newer tokens of the store
