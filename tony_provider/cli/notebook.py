"""``airflow tony notebook``: Jupyter in a container that has what a job's task has, in a browser of this machine."""

from __future__ import annotations

import secrets
import shlex
import time
from argparse import Namespace

import attrs

from tony_provider.cli.browser import open_browser
from tony_provider.cli.command import command
from tony_provider.cli.given import labels_of, secrets_of
from tony_provider.cli.local_port import cannot_be_had, expect_local_port
from tony_provider.cli.named import NotFound, hook_of
from tony_provider.cli.notebook_origin import NotebookOrigin, origin_of
from tony_provider.cli.notebook_way import NotebookWay, ToldToEnd
from tony_provider.cli.printing import say
from tony_provider.cli.times import seconds_of
from tony_provider.cli.told_to_end import until_told_to_end
from tony_provider.cluster.chain_choice import Resume
from tony_provider.cluster.chain_origin import ChainOrigin
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.notebook.notebook_job import TOKEN, NotebookWish, left_out, notebook_job
from tony_provider.cluster.submission_request import SubmissionRequest
from tony_provider.cluster.tunnel.errors import TunnelEnded
from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.notebook.options import NotebookOptions
from tony_provider.runtime.quantities import span
from tony_provider.runtime.spec.problems import SpecError
from tony_provider.runtime.spec.units import UnitError, parse_memory

_DAG_ID = "notebook"  # in the identity of notebooks, with whose they are after it
_TASK_ID = "notebook"
_LIFETIME = 12 * 3600.0  # seconds, where neither the command nor the connection says it
_SHORTEST = 60.0  # seconds of a lifetime
_BEFORE_THE_END = 300.0  # seconds before the cluster would end it: it ends by itself, with its work
_SHARE = 0.1  # of the lifetime, at most so much
_MEBIBYTE = 1 << 20
_PERIOD = 0.2  # seconds between two looks at what goes on


@command
def notebook(args: Namespace) -> None:
    """The command. Opens a notebook, and leads to it until Ctrl-C; the notebook goes on."""
    expect_local_port(args.local_port)
    with hook_of(args) as hook:
        origin = origin_of(hook, args)
        name = args.name or (origin.job.name if origin else "")
        if not name:
            raise NotFound(
                "name a job, JOB.tony.yaml, or an application by --of; --name alone leads to one that still runs"
            )
        found = _running(hook, name) or _started(hook, args, name, origin)
        if not args.detach:
            _lead(hook, args, found)
            return
        _tell_more(args, found, args.local_port)


@attrs.frozen
class _Notebook:
    """One that runs, or has been submitted."""

    name: str
    identity: Identity
    application_id: str
    token: str = attrs.field(repr=False)


def _identity(hook: TonyHook, name: str) -> Identity:
    return hook.identity(dag_id=f"{_DAG_ID}:{hook.get_conn().user}", run_id=name, task_id=_TASK_ID)


def _running(hook: TonyHook, name: str) -> _Notebook | None:
    """The notebook of this name that has not ended."""
    identity = _identity(hook, name)
    for application in hook.find(identity):
        token = hook.notebook_token(identity, application.id)
        if token is not None:
            say(f"The notebook {name!r} is there: {application.id}")
            return _Notebook(name, identity, application.id, token)
    return None


def _started(hook: TonyHook, args: Namespace, name: str, origin: NotebookOrigin | None) -> _Notebook:
    if origin is None:
        raise NotFound(f"there is no notebook {name!r} that runs: name the job, too, to open it again")
    hook.expect_servers()
    request = _request(hook, args, name, origin)
    token = request.secrets[TOKEN]
    application_id = hook.submit(
        request, before_submit=lambda new: hook.keep_notebook_token(request.identity, new, token)
    )
    say(f"Submitted {application_id}, the notebook {name!r}")
    return _Notebook(name, request.identity, application_id, token)


def _request(hook: TonyHook, args: Namespace, name: str, origin: NotebookOrigin) -> SubmissionRequest:
    """Raises JobRejected, TonySpecError, SourceMissing for what is known to be wrong before anything is started."""
    given = secrets_of(args.secret or [])
    lifetime = _lifetime(hook, args)
    wish = NotebookWish(
        name=name,
        options=NotebookOptions(seconds_of("--idle", args.idle), _end(lifetime), _bytes_of("--keep", args.keep)),
        lifetime=lifetime,
        task_type=args.task,
        queue=args.queue,
        secrets=frozenset(given),
    )
    try:
        job = notebook_job(origin.job, wish, origin.overrides)
    except SpecError as error:
        raise TonySpecError(f"the notebook's job: {error}") from error
    hook.expect_kernel(job, origin.search_path, origin.file_roots)
    for line in (*origin.news, *_not_there(left_out(origin.job, wish))):
        say(line)
    values = {**{each: given[each] for each in job.secrets if each in given}, TOKEN: secrets.token_urlsafe(32)}
    return SubmissionRequest(
        job,
        _identity(hook, name),
        values,
        labels_of(name),
        origin.search_path,
        Resume.ALWAYS,
        ChainOrigin(warm_start=origin.checkpoint),
        overrides=origin.overrides,
        watched=False,
        file_roots=origin.file_roots,
    )


def _not_there(names: list[str]) -> list[str]:
    return [f"Without the job's secrets {', '.join(names)}: give their values by --secret NAME"] if names else []


def _lifetime(hook: TonyHook, args: Namespace) -> float:
    if args.lifetime is None:
        return min(_LIFETIME, hook.settings.policy.max_lifetime or _LIFETIME)
    seconds = seconds_of("--lifetime", args.lifetime)
    if seconds < _SHORTEST:
        raise SystemExit(f"--lifetime: at least {span(_SHORTEST)}")
    return seconds


def _end(lifetime: float) -> float:
    return time.time() + lifetime - min(_BEFORE_THE_END, _SHARE * lifetime)


def _bytes_of(option: str, text: str) -> int:
    try:
        return parse_memory(text) * _MEBIBYTE
    except UnitError as error:
        raise SystemExit(f"{option}: {error}") from error


def _lead(hook: TonyHook, args: Namespace, found: _Notebook) -> None:
    """Until Ctrl-C, or the notebook's end."""
    way = NotebookWay(hook, found.identity, found.application_id, found.token)
    port = args.local_port
    try:
        with until_told_to_end() as over:
            way.wait_for_container(over)
            with way.open(args.local_port, over) as tunnel:
                port = tunnel.port
                url = way.wait_for_server(tunnel, over)
                say(f"{url}\nCtrl-C closes the way to it; the notebook goes on")
                if args.open:
                    open_browser(url)
                with way.telling_warnings():
                    while not over.is_set() and not tunnel.wait(_PERIOD):
                        pass
    except ToldToEnd:
        pass
    except TunnelEnded as error:
        say(way.ending(error))
        return
    except OSError as error:
        _tell_more(args, found, 0)
        raise SystemExit(cannot_be_had(args.local_port, error)) from error
    _tell_more(args, found, port)


def _tell_more(args: Namespace, found: _Notebook, port: int) -> None:
    """``port``: of this machine, 0: any. By the same one a page that is still open goes on where it was."""
    more = f" --conn-id {args.conn_id}" if args.conn_id != TonyHook.default_conn_name else ""
    back = f" --local-port {port}" if port else ""
    say("The notebook goes on.")
    say(f"Back to it: airflow tony notebook --name {shlex.quote(found.name)}{back}{more}")
    say(f"End it:     airflow tony kill {found.application_id}{more}")
