"""The plan of a new application's training: in which checkpoint chain, and from which checkpoint."""

from __future__ import annotations

import attrs

from tony_provider.cluster.base import Cluster
from tony_provider.cluster.chain_choice import Resume, choose
from tony_provider.cluster.chain_origin import ChainOrigin, OriginFinder
from tony_provider.cluster.checkpoint_chains import ChainState, CheckpointChains, choose_checkpoint, new_chain
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout
from tony_provider.cluster.previous_application import previous_application
from tony_provider.runtime.checkpoint.catalog import ChosenCheckpoint
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.checkpoint_chain import CheckpointChain
from tony_provider.runtime.storage.base import Storage


@attrs.frozen
class TrainingPlan:
    """What a new application trains on: its checkpoint chain, and the checkpoint or model it begins with."""

    newest: ChainState | None  # as it was found
    goes_on: bool  # in the newest one; else another is opened
    about: CheckpointChain  # what its file will say
    why: str  # for the task's log
    resume: ResumePoint | None = None  # the checkpoint from which the training resumes
    saved_in: str = ""  # URI of the chain that holds it
    not_from: str = ""  # describes a newer checkpoint that is not used, and why

    @property
    def begins_again(self) -> bool:
        """Whether the training has a chain and does not use it."""
        return self.newest is not None and not self.goes_on and self.resume is None

    def __str__(self) -> str:
        where = f"goes on in {self.newest.uri}" if self.goes_on and self.newest else "opens a new checkpoint chain"
        if self.resume is not None:
            whence = f"from {self.resume.label} in {self.saved_in}"
            whence += f", {self.not_from}" if self.not_from else ""
        else:
            whence = "from the beginning" + (f", with {self.about.warm_start}" if self.about.warm_start else "")
        return f"{where} ({self.why}) and trains {whence}"


@attrs.frozen
class TrainingPlanner:
    """Makes the plan for a new application of one training, from what the store and the cluster know."""

    cluster: Cluster
    storage: Storage
    layout: Layout
    identity: Identity

    def plan(self, fingerprint: dict[str, str], resume: Resume, origin: ChainOrigin) -> TrainingPlan:
        """Decide what a new application is to go on from. Changes nothing.

        Raises SourceMissing for an origin that is not there, ClusterError, StorageError.
        """
        newest = CheckpointChains(self.storage, self.layout, self.identity).newest()
        before = previous_application(self.cluster, self.storage, self.layout, self.identity)
        choice = choose(resume, newest, fingerprint, has_succeeded=before is not None and before.has_succeeded)
        kept = newest if choice.goes_on else None
        about = kept.about if kept is not None and kept.about is not None else new_chain()
        finder = OriginFinder(self.storage, self.layout)
        saved_in = kept.uri if kept is not None else None
        chosen = self._choose(saved_in)
        if chosen is None:
            # The training's own checkpoints come first. With one of them, the other chain is no longer needed.
            saved_in = finder.chain(origin) or about.continues
            chosen = self._choose(saved_in)
            about = attrs.evolve(about, continues=saved_in)
        about = attrs.evolve(about, fingerprint=fingerprint, warm_start=finder.warm_start(origin))
        if chosen is None or saved_in is None:
            return TrainingPlan(newest, choice.goes_on, about, choice.why)
        point = chosen.checkpoint.point
        return TrainingPlan(newest, choice.goes_on, about, choice.why, point, saved_in, chosen.not_from)

    def _choose(self, chain: str | None) -> ChosenCheckpoint | None:
        return None if chain is None else choose_checkpoint(self.storage, chain)
