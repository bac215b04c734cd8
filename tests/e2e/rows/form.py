"""A person at a browser."""

from __future__ import annotations

from urllib.parse import quote

from tests.browser import is_drawn
from tests.e2e.browser import Browser
from tests.e2e.field import Field
from tests.e2e.links import wrong_links
from tests.e2e.row import row
from tests.e2e.runs import runs_of
from tests.waiting import until

TYPED = {"steps": 30, "every": 10, "data": "sessions of spring", "queue": "ml"}
CURVE_SECONDS = 10.0
SECTIONS = {"Training": ("steps", "every"), "Run Parameters": ("data",), "Cluster": ("queue",)}


@row("form", "parameters typed into the form, and Trigger pressed")
def form(field: Field) -> str:
    """The run appears, its conf is what was typed, and the training has used it."""
    field.claim("form")
    known = {run.run_id for run in runs_of(field.rest, "form")}
    browser = field.browser()
    browser.open("/dags/form")
    browser.press("Trigger")
    _fill(browser)
    browser.press("Trigger", within="//*[@role='dialog']")

    new = until(lambda: [run for run in runs_of(field.rest, "form") if run.run_id not in known], "a run to appear")
    run = field.run("form", new[0].run_id)
    training = field.training(run, pace=10.0)  # long enough for all the pages, on a machine that is slow and busy
    field.expect(run.facts()["conf"] == TYPED, f"the run's conf is {run.facts()['conf']}")
    training.task.until("deferred")
    training.until_step(2)
    page = f"/dags/form/runs/{quote(run.run_id, safe='')}"
    browser.open(page)
    browser.see_text("Deferred")
    browser.keep("grid")
    browser.open(f"{page}/tasks/train")
    browser.see_text("Submitted application_")
    browser.keep("task")
    field.problems += wrong_links(training)  # they are there while it trains
    links = {name: address for name, address in training.task.links().items() if address}
    browser.open(f"{page}/tasks/train/details")
    for name in links:
        browser.see_text(name)
    browser.keep("links")
    for name, address in links.items():
        browser.go(address)
        if name == "TensorBoard":
            _see_curve(browser)
        browser.keep(name.lower().replace(" ", "-"))
    application = training.newest
    field.expect(
        application["name"] == "form.train on sessions of spring", f"the application is called {application['name']}"
    )
    field.expect(application["queue"].endswith("ml"), f"it is in the queue {application['queue']}")
    training.hurry()
    field.expect(run.end() == "success", f"the run is {run.describe()}")
    step = training.diary.entries("ended")[-1].step
    field.expect(step == TYPED["steps"], f"it trained {step} steps")
    browser.open(f"{page}/tasks/train/xcom")
    browser.see_text("model_dir")
    browser.keep("result")
    return f"conf as typed; trained {step} steps in queue {application['queue']}"


def _see_curve(browser: Browser) -> None:
    """TensorBoard takes its time, and a page that was opened before its first point has to be opened again."""

    def is_there() -> bool:
        browser.driver.refresh()
        return browser.has("css selector", "card-view line-chart canvas", CURVE_SECONDS)

    until(is_there, "a chart in TensorBoard", period=1.0)
    until(lambda: is_drawn(browser.driver, "card-view line-chart .series-view"), "the curve in it")


def _fill(browser: Browser) -> None:
    for section, names in SECTIONS.items():
        first = browser.find("name", f"element_{names[0]}")
        if not first.is_displayed():
            browser.press(section)
        for name in names:
            browser.fill(browser.see("name", f"element_{name}"), str(TYPED[name]))
        browser.keep(f"form-{section.lower().replace(' ', '-')}")
