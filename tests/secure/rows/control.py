"""Page, status, logs and control of alice's running job, to another user: through YARN's proxy, and past it."""

from __future__ import annotations

import json

from tests.secure.field import Field
from tests.secure.row import row

_SIGHT = ("", "sections", "status", "metrics", "logs/worker-0", "logs/worker-1")
_ORDERS = ("stop", "checkpoint", "export", "suspend", "resume", "resize", "tokens")
_REASON = json.dumps({"reason": "by somebody else", "name": "0" * 32, "data": ""})


@row("others-page", "see page, status, metrics and logs of alice's job through YARN's proxy")
def others_page(field: Field) -> str:
    victim = field.victim()
    bob = field.visitor("bob")
    for path in _SIGHT:
        # As a browser that has passed the proxy's warning.
        answer = bob.ask("GET", f"{victim.page}{path}?proxyapproved=true")
        field.expect(answer.code == 403, f"{path or 'page'}: {answer.code} {answer.first}")
        field.expect("worker:1" not in answer.text, f"{path or 'page'} tells of her tasks: {answer.first}")
    seen = field.visitor("alice").ask("GET", f"{victim.page}status")
    field.expect(seen.code == 200 and "worker" in seen.text, f"alice herself sees {seen.code} {seen.first}")
    return f"{len(_SIGHT)} paths, 403 each; alice sees her own"


@row("others-control", "stop alice's job, order checkpoints, exports and tokens through YARN's proxy")
def others_control(field: Field) -> str:
    victim = field.victim()
    bob = field.visitor("bob")
    for order in _ORDERS:
        answer = bob.ask("PUT", f"{victim.page}control/{order}?proxyapproved=true", _REASON)
        field.expect(answer.code == 403, f"{order}: {answer.code} {answer.first}")
    asked = [each["event"] for each in victim.job.events()]
    field.expect("checkpoint_requested" not in asked, "a checkpoint was asked for")
    return f"{', '.join(_ORDERS)}: 403 each, and nothing was asked of her tasks"


@row("past-the-proxy", "ask the master's own port, with the proxy's cookie forged as alice's, as yarn's, and none")
def past_the_proxy(field: Field) -> str:
    victim = field.victim()
    host, port = victim.ports()["web"]
    nobody = field.visitor(None)
    asked = 0
    for cookie in (
        None,
        "proxy-user=alice",
        "proxy-user=yarn",
        'proxy-user="alice"',
        "proxy-user=bob; proxy-user=alice",
    ):
        for method, path, body in (
            ("GET", "/", None),
            ("GET", "/status", None),
            ("GET", "/logs/worker-0", None),
            ("PUT", "/control/stop", _REASON),
        ):
            for scheme in ("http", "https"):
                # From a node: the proxy's own address is that of the ResourceManager's host, where bob has no account.
                headers = {"Cookie": cookie} if cookie else {}
                answer = nobody.ask(method, f"{scheme}://{host}:{port}{path}", body, headers, source="127.0.1.2")
                field.expect(answer.code not in range(200, 400), f"{cookie} {scheme} {path}: {answer.first}")
                field.expect("worker" not in answer.text, f"{cookie} {path} tells of her tasks: {answer.first}")
                asked += 1
    return f"{asked} requests from a node's address, none answered but with a refusal"


@row("others-kill", "kill, move, re-rank and prolong alice's application by YARN's own interface")
def others_kill(field: Field) -> str:
    victim = field.victim()
    bob, api = field.visitor("bob"), victim.api
    timeout = {"timeout": {"type": "LIFETIME", "expiryTime": "2030-01-01T00:00:00.000+0000"}}
    acts: tuple[tuple[str, str, object], ...] = (
        ("PUT", f"{api}/state", {"state": "KILLED"}),
        ("PUT", f"{api}/queue", {"queue": "ml"}),
        ("PUT", f"{api}/priority", {"priority": 9}),
        ("PUT", f"{api}/timeout", timeout),
    )
    for method, url, body in acts:
        answer = bob.ask(method, url, json.dumps(body))
        field.expect(answer.code in (401, 403), f"{method} {url}: {answer.code} {answer.first}")
    tasks = [(task.name, task.attempt) for task in victim.job.status().tasks]
    field.expect(all(attempt == 1 for _, attempt in tasks), f"tasks were lost: {tasks}")
    return f"{len(acts)} orders, each refused by the ResourceManager"


@row(
    "others-signal", "have YARN send SIGKILL to alice's master and SIGTERM to a task's container, by its REST interface"
)
def others_signal(field: Field) -> str:
    """Hadoop 3.4.2 asks its own user's rights there, and not the caller's: nothing of ours can refuse it.

    What is ours: that the job comes to its good end all the same.
    """
    victim = field.victim(own=True)
    bob, base = field.visitor("bob"), victim.api.partition("/apps/")[0]
    codes = [
        bob.ask("POST", f"{base}/containers/{container}/signal/{command}", "{}").code
        for container, command in (
            (victim.container("worker:0"), "GRACEFUL_SHUTDOWN"),
            (victim.container(), "FORCEFUL_SHUTDOWN"),
        )
    ]
    if set(codes) <= {401, 403}:
        return "refused by this ResourceManager"
    victim.until(lambda: victim.job.status().am_attempt == 2, "the next master")
    victim.until_running()
    status = victim.job.status()
    lost = [task.name for task in status.tasks if task.attempt > 1]
    field.cost = f"a master, {len(lost)} containers"
    return "YARN's own hole: it sent both (200). The next master went on, the task began again, the job SUCCEEDED"
