"""Versions of triggers' arguments, which outlive a release: a task may be deferred by one and waited for by another."""

from __future__ import annotations


class DeferredByNewerRelease(Exception):  # noqa: N818 - named for what is wrong
    """A trigger was given arguments of a newer release, which it cannot read.

    Its task is none the worse for it, and may defer anew.
    """


def refuse_newer(version: int, known: int) -> None:
    """Check that a trigger knows the version of its arguments. Raises DeferredByNewerRelease.

    To be called when the trigger runs: what its constructor raises would end the whole triggerer.
    """
    if version > known:
        raise DeferredByNewerRelease(
            f"this task was deferred by a newer release of tony-provider than the triggerer has (version {version} of "
            f"its arguments, and {known} is known); bring the triggerers up to the workers' release"
        )
