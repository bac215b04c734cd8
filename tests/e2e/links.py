"""The extra links of a training's task: each try's own, there while the job runs, and some of them after it."""

from __future__ import annotations

from tests.e2e.training import Training
from tony_provider.compat import PORTAL

NAMES = {"Training job", "YARN application", "Job page", "TensorBoard", "Logs and files"}
# That only some jobs have, or that are gone with a job's master; and the page of the portal, where there is one.
OPTIONAL = {"TensorBoard", "Job page", *(() if PORTAL.is_here else ("Training job",))}


def wrong_links(training: Training) -> list[str]:
    """What is wrong with the links of its last try, in words: each is to lead to the newest application."""
    found = training.applications()
    if not found:
        return []
    problems = []
    links = training.task.links()
    if missing := NAMES - set(links):
        problems.append(f"{training.task.task_id} has no links {sorted(missing)}")
    for name, address in links.items():
        if not address and name in OPTIONAL:
            continue
        if found[-1]["id"] not in (address or ""):
            problems.append(f"link {name!r} of {training.task.task_id} is {address}, and not of {found[-1]['id']}")
    return problems
