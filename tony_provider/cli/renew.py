"""``airflow tony renew``: newer HDFS tokens for jobs that nobody waits for."""

from __future__ import annotations

from argparse import Namespace

from tony_provider.cli.command import command
from tony_provider.cli.named import NotFound, hook_of
from tony_provider.cli.printing import say
from tony_provider.cluster.application_ref import ApplicationRef
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.clock import moment
from tony_provider.watching.observation import observe
from tony_provider.watching.token_renewal import TokenRenewal


@command
def renew(args: Namespace) -> None:
    """The command: for the applications that are named, or for all that run, as they need one.

    Exits with 1 when one that needs a token does not get it.
    """
    with hook_of(args) as hook:
        wanted = [_named(hook, each) for each in args.application_ids] or _live(hook)
        failed = [ref.application_id for ref in wanted if not _renew(hook, ref, now=args.now)]
    if failed:
        raise SystemExit(f"no newer token for {', '.join(failed)}")


def _named(hook: TonyHook, application_id: str) -> ApplicationRef:
    found = hook.application_ref(application_id=application_id)
    if found is None:
        raise NotFound(f"neither the cluster nor {hook.layout.root} knows of {application_id}")
    return found


def _live(hook: TonyHook) -> list[ApplicationRef]:
    found = [hook.application_ref(application_id=each.id) for each in hook.live()]
    return [each for each in found if each is not None and each.identity is not None]


def _renew(hook: TonyHook, ref: ApplicationRef, *, now: bool) -> bool:
    """Prints what has become of it; False where it needs a token and has none."""
    name = ref.application_id
    seen = observe(hook, ref.identity, name)
    if seen.outage is not None:
        say(f"{name}: {seen.outage}")
        return False
    life = seen.newest.store_token if seen.newest is not None else None
    renewal = TokenRenewal(ref.identity, name)
    if not seen.runs:
        say(f"{name} does not run")
    elif life is None:
        say(f"{name} has no HDFS token, or has not told of it yet")
    elif not (now or renewal.is_due(seen)):
        say(f"{name} has an HDFS token until {moment(life.until_ms)}: it is early yet")
    else:
        renewed = renewal.renew(hook, seen)
        say("\n".join(renewal.lines()))
        return renewed
    return True
