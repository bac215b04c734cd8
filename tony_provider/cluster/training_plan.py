"""The plan of a new application's training: in which checkpoint chain, and from which checkpoint."""

from __future__ import annotations

import attrs

from tony_provider.cluster.base import Cluster
from tony_provider.cluster.chain_choice import Resume, choose
from tony_provider.cluster.chain_origin import ChainOrigin, OriginFinder
from tony_provider.cluster.checkpoint_chains import ChainState, CheckpointChains, new_chain, newest_checkpoint
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout
from tony_provider.cluster.previous_application import previous_application
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
    resume: ResumePoint | None = None  # the newest checkpoint, which is to be gone on from
    saved_in: str = ""  # URI of the chain that holds it

    def __str__(self) -> str:
        where = f"goes on in {self.newest.uri}" if self.goes_on and self.newest else "opens a new checkpoint chain"
        if self.resume is not None:
            whence = f"from the checkpoint of {self.resume.label} in {self.saved_in}"
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
        saved_in, newest_one = self._own_checkpoint(kept)
        if newest_one is None:
            # Only now: what this training has saved itself comes first, and needs the other one no more.
            saved_in, newest_one = self._foreign_checkpoint(finder.chain(origin) or about.continues)
            about = attrs.evolve(about, continues=saved_in or None)
        about = attrs.evolve(about, fingerprint=fingerprint, warm_start=finder.warm_start(origin))
        return TrainingPlan(
            newest, choice.goes_on, about, choice.why, newest_one, saved_in if newest_one is not None else ""
        )

    def _own_checkpoint(self, chain: ChainState | None) -> tuple[str, ResumePoint | None]:
        return ("", None) if chain is None else (chain.uri, newest_checkpoint(self.storage, chain.uri))

    def _foreign_checkpoint(self, uri: str | None) -> tuple[str, ResumePoint | None]:
        return ("", None) if uri is None else (uri, newest_checkpoint(self.storage, uri))
