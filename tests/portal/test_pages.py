"""The portal's pages in a real browser, within Airflow's own, with seeded jobs behind them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.axe import violations
from tests.browser import browser, complaints, photograph, prefer
from tests.portal import seeded, stored
from tests.portal.seeded import DAG_ID, FAILED, MARKED, ODD, READER, RESTARTED, SWEEP, application_id
from tests.portal.seen import JOBS, Pages
from tests.portal.served import seed_the_store, served, token
from tests.waiting import until

PHONE = 390  # pixels


@pytest.fixture(scope="module")
def url(api_server: FastAPI) -> Iterator[str]:
    seeded.seed()
    with pytest.MonkeyPatch.context() as patch:
        seed_the_store(patch)
        with served(api_server) as url:
            yield url


@pytest.fixture(scope="module")
def window(url: str) -> Iterator[Chrome]:
    with browser(1400, 1000) as driver:
        driver.get(f"{url}/tony/static/icon.svg")  # a cookie can be given to where one is
        driver.add_cookie({"name": "_token", "value": token(READER), "path": "/"})
        yield driver


@pytest.fixture
def pages(window: Chrome, url: str) -> Pages:
    prefer(window, "light")
    complaints(window)
    return Pages(window, url)


def job(dag_id: str, number: int) -> str:
    return f"{JOBS}?job={application_id(dag_id, number)}"


def test_from_the_list_to_a_job(pages: Pages) -> None:
    pages.open(f"{JOBS}?dag_id={DAG_ID}&verdict=FAILED")
    pages.see("table.jobs")
    assert pages.texts("table.jobs tbody .badge") == ["FAILED", "FAILED"]
    expected = seeded.summary(DAG_ID, FAILED)
    pages.press(expected.name, "a")
    pages.see_text(expected.reason)
    phases = str(pages.see(".phases").get_attribute("aria-label"))
    assert "Training, " in phases
    assert "generation" not in phases  # without a restart
    assert f"412 of {expected.total_steps:,}" in pages.section("Summary")
    until(lambda: len(pages.all("section canvas")) >= 2, "the curves")
    one_point = """
        const done = arguments[0];
        const { name } = performance.getEntriesByType("resource").find((each) => each.name.includes("/series.js"));
        const axes = [[[1000], { time: true }], [[1000], {}], [[86400], { time: true, utc: true }], [[1, 2], {}]];
        import(name).then(({ aroundOne }) => done(axes.map((each) => aroundOne(...each))));
    """
    assert pages.driver.execute_async_script(one_point) == [[970, 1030], [999, 1001], [43200, 129600], None]
    assert application_id(DAG_ID, 50 + FAILED) in pages.section("Other tries of this task")
    assert complaints(pages.driver) == []


@pytest.mark.long
def test_filters_stand_in_the_address(pages: Pages) -> None:
    pages.open(JOBS)
    pages.see("table.jobs")
    assert len(pages.all("table.jobs tbody tr")) == seeded.DAYS + seeded.MAPPED + 2
    field = pages.see("input[name=text]")
    field.send_keys("sweep", Keys.ENTER)
    until(lambda: len(pages.all("table.jobs tbody tr")) == seeded.MAPPED, "the jobs of the sweep")
    assert "text=sweep" in pages.driver.current_url
    pages.driver.back()
    until(lambda: len(pages.all("table.jobs tbody tr")) > seeded.MAPPED, "all jobs again")
    assert pages.see("input[name=text]").get_attribute("value") == ""
    pages.open(f"{JOBS}?text=no+such+job")
    pages.see_text("No job that you may read matches these filters.")
    pages.press("Show all jobs")
    pages.see("table.jobs")


@pytest.mark.long
def test_jobs_are_chosen_and_compared(pages: Pages) -> None:
    pages.open(f"{JOBS}?dag_id={DAG_ID}")
    pages.see("table.jobs")
    for number in (1, 2, RESTARTED):
        pages.see(f"input[aria-label$='{application_id(DAG_ID, number)}']").click()
    pages.see_text("3 of at most 8 jobs selected")
    pages.press("Compare")
    pages.see_text("Comparison of 3 jobs")
    figures = pages.section("Metrics and parameters")
    assert "batch_size parameter\t32" in figures
    for number in (1, 2, RESTARTED):
        assert f"{seeded.summary(DAG_ID, number).metrics['accuracy']:g}" in figures
        assert seeded.summary(DAG_ID, number).parameters["optimizer.lr"] in figures
    marked = pages.texts("section[aria-labelledby] table mark")
    assert seeded.summary(DAG_ID, 1).parameters["optimizer.lr"] in marked
    assert "32" not in marked
    pages.see("input[type=checkbox]").click()
    until(lambda: "batch_size" not in pages.section("Metrics and parameters"), "only differences")
    assert "tasks.worker.command" in pages.section("Differences")
    arguments = [each for each in pages.texts("section mark") if each.startswith("2026-01-")]
    assert arguments == [stored.day(number).isoformat() for number in (1, 2, RESTARTED)]
    assert pages.texts(".legend")[0].count("2026-01-") == 3
    ids = " ".join(application_id(DAG_ID, number) for number in (1, 2, RESTARTED))
    assert f"airflow tony tensorboard {ids}" in pages.section("TensorBoard")
    pages.press("Copy")
    pages.see_text("Copied")
    pages.press("Side by side, with all defaults", "summary")
    until(lambda: "tasks.worker.command differs" in pages.section("Specifications"), "the specifications")
    assert complaints(pages.driver) == []


@pytest.mark.long
def test_words_that_differ_in_commands(pages: Pages) -> None:
    pages.open(JOBS)
    pages.see("table.jobs")
    differ = """
        const done = arguments[arguments.length - 1];
        const loaded = performance.getEntriesByType("resource");
        const { name } = loaded.find((each) => each.name.includes("/specification.js"));
        import(name).then(({ wordDifferences }) => done(arguments[0].map((texts) => wordDifferences(texts).map(
          (parts) => parts.filter(({ differs }) => differs).map(({ text }) => text)))));
    """
    commands = {
        ("a --lr 1 --x", "a --lr 2 --x"): [["1"], ["2"]],
        ("a --lr=1", "a  --lr=1 --amp", "a --lr=2"): [["--lr=1"], ["--lr=1", "--amp"], ["--lr=2"]],
        ("a b", "a b"): [[], []],
        ("a b a", "b a"): [["a"], []],
        ("", "a"): [[], ["a"]],
    }
    assert pages.driver.execute_async_script(differ, [list(each) for each in commands]) == list(commands.values())


@pytest.mark.long
def test_columns_are_chosen_and_sorted(pages: Pages) -> None:
    pages.open(f"{JOBS}?dag_id={SWEEP}&order=submitted")
    pages.see("table.jobs")
    pages.press("Columns: 0 of 5 metrics and parameters", "summary")
    until(lambda: len(pages.all(".choice .names label")) == 5, lambda: str(pages.texts(".choice")))
    for name in ("accuracy", "optimizer.lr"):
        next(each for each in pages.all(".choice .names label") if each.text == name).click()
        until(partial(_has_column, pages, name), "the column")
    assert "columns=metric%3Aaccuracy&columns=param%3Aoptimizer.lr" in pages.driver.current_url
    pages.press("optimizer.lr", "th/button")
    rates = sorted((seeded.summary(SWEEP, number).parameters["optimizer.lr"] for number in range(3)), reverse=True)
    until(lambda: pages.texts("table.jobs tbody tr > :nth-child(7)") == rates, lambda: str(pages.texts("table.jobs")))
    pages.press("optimizer.lr ▼", "th/button")
    until(
        lambda: pages.texts("table.jobs tbody tr > :nth-child(7)") == rates[::-1],
        lambda: str(pages.texts("table.jobs")),
    )
    assert "order=param%3Aoptimizer.lr" in pages.driver.current_url
    assert complaints(pages.driver) == []


@pytest.mark.long
def test_results(pages: Pages) -> None:
    pages.open(job(DAG_ID, 1))
    found = pages.section("Results")
    for said in (
        "hdfs://nn/models/1",
        "accuracy\n0.875",
        'classes\n["a","b"]',
        "optimizer.lr\t0.05\tprogram",
        "day\t1\tparams",
    ):
        assert said in found
    pages.open(job(MARKED, 0))
    assert "optimizer.lr" in pages.section("Results")


@pytest.mark.long
def test_a_job_with_everything(pages: Pages) -> None:
    pages.open(job(DAG_ID, RESTARTED))
    line = pages.section("Timeline")
    for said in (
        "the gang restarts",
        "RuntimeError: <b>NCCL</b>",
        "step 800 is on the store",
        "clock went back once",
    ):
        assert said in line
    assert "Training (generation 2)" in str(pages.see(".phases").get_attribute("aria-label"))
    assert "47 min 40 s" in pages.section("Time by phase")  # without what was trained again
    assert "3 GiB of 8 GiB" in pages.section("Resources: requested and used")
    assert "ask for 4 GiB" in pages.section("Advice")
    assert "The clock went back once" in pages.section("Resources: requested and used")
    assert "--day 2026-01-12" in pages.section("Changes since the previous run")
    pages.press("Output of the tasks", "summary")
    until(lambda: "<i>out of memory</i>" in pages.section("Logs"), "the log")
    chart = pages.see(".drawing").get_attribute("aria-label")
    assert chart is not None
    assert chart.startswith("Chart of loss over step. worker:0: from")
    assert pages.texts("h2")[-2:] == ["Specification", "TensorBoard"]
    assert f"airflow tony tensorboard {application_id(DAG_ID, RESTARTED)}" in pages.section("TensorBoard")
    photograph(pages.driver, "portal-job")


@pytest.mark.long
def test_a_running_job_renews_itself(pages: Pages) -> None:
    pages.open(job(DAG_ID, seeded.RUNNING))
    pages.see_text("about 1 min 52 s left")
    now = pages.section("Progress")
    assert "step 640 of 1,000" in now
    assert "worker:1" in now
    until(lambda: pages.section("Progress").splitlines()[0] != now.splitlines()[0], "a newer status")
    assert pages.texts("[role=status]").count("The job is RUNNING") == 1


@pytest.mark.long
def test_a_job_whose_end_nobody_has_recorded(pages: Pages) -> None:
    pages.open(job(MARKED, 0))
    pages.see_text("The end of this job was not recorded")
    pages.see_text("State of the task: failed.")
    ended = pages.section("End of the job")
    assert "KILLED the deferred task was marked or cleared by a user" in ended
    assert "1 min 30 s" in pages.section("Time by phase")
    assert pages.texts("h1 .badge") == ["LOST"]


@pytest.mark.long
def test_a_store_that_is_away(pages: Pages) -> None:
    pages.open(job(SWEEP, 1))
    pages.see_text("hdfs://away.example.com:8020 does not answer")
    assert "train [1]" in pages.section("Run")
    until(lambda: len(pages.all("canvas")) == 2, "the curves of the summary")


@pytest.mark.long
def test_metrics_with_odd_names_and_values(pages: Pages) -> None:
    pages.open(job(ODD, 0))
    figures = pages.section("Results")
    assert seeded.HTML[:20] in figures
    assert f"{seeded.MANY - 9} more metrics" in figures
    assert "29 values are NaN or infinite and shown as gaps" in pages.section("Learning curves")
    assert pages.texts("h1")[0].startswith("<script>alert(1)</script>")
    assert "events" in pages.section("Timeline")  # of which some are damaged
    assert pages.driver.title == "Airflow"
    assert "TensorBoard" not in pages.texts("h2")  # the store has no event files
    assert complaints(pages.driver) == []


@pytest.mark.long
def test_thousands_of_metrics_are_searched(pages: Pages) -> None:
    pages.open(f"/dags/{ODD}/plugin/trainings")
    field = pages.see(".choice input[type=search]")
    assert len(pages.all(".choice .names label")) <= 31
    field.send_keys("layer/02999")
    until(lambda: pages.texts(".choice .names label") == ["layer/02999/norm"], "the one metric")
    pages.all(".choice .names label")[0].click()
    until(lambda: "layer/02999/norm" in pages.texts("figcaption"), "its chart")


@pytest.mark.long
def test_dates_have_gaps_and_lead_to_jobs(pages: Pages) -> None:
    pages.open(f"/dags/{DAG_ID}/plugin/trainings")
    section = pages.section("train")
    assert f"{seeded.DAYS} dates, 1 without a job (gap)" in section
    rows = pages.texts("section table tbody tr")
    assert len(rows) == seeded.DAYS
    assert "no job" in next(row for row in rows if row.startswith("2026-01-09"))
    assert pages.texts("figcaption")[:2] == ["loss", "Duration"]
    pages.open(f"/dags/{DAG_ID}/plugin/trainings?metric=accuracy")
    point = pages.see(".pickable .u-over")
    _click(pages, point, 0.99, -0.8)  # the newest date is on the right, and its accuracy the highest
    until(
        lambda: f"job={application_id(DAG_ID, seeded.RUNNING)}" in pages.driver.current_url,
        lambda: pages.driver.current_url,
    )


@pytest.mark.long
def test_dates_open_with_a_task_that_has_metrics(pages: Pages) -> None:
    pages.open(f"/dags/{SWEEP}/plugin/trainings")
    pages.section("train [1]")
    assert pages.texts("[aria-label=Task] [aria-pressed=true]") == ["train [1]"]
    assert pages.texts("[aria-label=Task] button")[0] == "train [0]"


@pytest.mark.long
def test_ticks_have_distinct_texts(pages: Pages) -> None:
    """Seen: 3.5, 3.3 and 3 MiB/s for steps of a quarter, and several times 1 h 0 min."""
    pages.open(job(DAG_ID, RESTARTED))
    until(lambda: pages.all("section canvas"), "the curves")
    script = """
        const done = arguments[0];
        const { name } = performance.getEntriesByType("resource").find((each) => each.name.includes("/ticks.js"));
        import(name).then(({ NUMBER, BYTE_RATE, CORES, DURATION, PERCENT }) => done([
          NUMBER.ticks([0.1234567, 0.1234568, 0.1234569]), NUMBER.ticks([0, 2.5, 5]), NUMBER.ticks([0, 1e9, 2e9]),
          BYTE_RATE.ticks([3, 3.25, 3.5].map((each) => each * 2 ** 20)), BYTE_RATE.ticks([0, 512, 1024]),
          CORES.ticks([150, 200, 250]), PERCENT.ticks([0, 50, 100]),
          DURATION.ticks([0, 3600, 3630]), DURATION.ticks([3600, 3900]), DURATION.ticks([86400, 90000]),
        ]));
    """
    assert pages.driver.execute_async_script(script) == [
        ["0.1234567", "0.1234568", "0.1234569"],
        ["0.0", "2.5", "5.0"],
        ["0", "1.0e+9", "2.0e+9"],
        ["3.00 MiB/s", "3.25 MiB/s", "3.50 MiB/s"],
        ["0", "0.5 KiB/s", "1.0 KiB/s"],
        ["1.5", "2.0", "2.5"],
        ["0", "50 %", "100 %"],
        ["0", "1 h", "1 h 30 s"],
        ["1 h", "1 h 5 min"],
        ["1 d", "1 d 1 h"],
    ]


@pytest.mark.long
def test_a_log_is_searched(pages: Pages) -> None:
    pages.open(job(DAG_ID, FAILED))
    field = pages.see(".log-search input")
    field.send_keys("STEP 1")
    until(lambda: "1 of 11 matches" in pages.section("Logs"), lambda: pages.section("Logs")[:200])
    assert pages.texts(".log mark") == ["step 1"] * 11
    field.send_keys(Keys.ENTER)
    until(lambda: "2 of 11 matches" in pages.section("Logs"), "the next match")
    pages.press("Previous")
    pages.press("Previous")
    until(lambda: "11 of 11 matches" in pages.section("Logs"), "the last match")
    shown = """
        const mark = document.querySelector(".log mark[aria-current]").getBoundingClientRect();
        const log = document.querySelector(".log").getBoundingClientRect();
        return log.top < mark.top && mark.bottom < log.bottom
    """
    until(lambda: pages.driver.execute_script(shown), "the match in the visible part of the log")
    field.send_keys("(")
    until(lambda: "no matches" in pages.section("Logs"), "no match of a parenthesis")


@pytest.mark.long
def test_the_log_of_a_running_job_is_followed_until_the_user_scrolls(pages: Pages) -> None:
    pages.open(job(DAG_ID, seeded.RUNNING))
    top = "return document.querySelector('.log').scrollTop"
    rest = "const log = document.querySelector('.log'); return log.scrollHeight - log.clientHeight - log.scrollTop"

    def newest() -> int:
        return len(pages.driver.execute_script("return document.querySelector('.log').textContent").splitlines())

    follow = pages.see(".log-bar [type=checkbox]")
    lines = newest()
    until(lambda: newest() > lines, "new output")
    until(lambda: pages.driver.execute_script(rest) < 2, "the end of the log")
    pages.driver.execute_script("document.querySelector('.log').scrollTop = 0")
    until(lambda: not follow.is_selected(), "that the log is not followed")
    lines = newest()
    until(lambda: newest() > lines, "new output")
    assert pages.driver.execute_script(top) == 0
    pages.driver.execute_script("arguments[0].click()", follow)
    until(lambda: pages.driver.execute_script(rest) < 2, "the end of the log again")


@pytest.mark.long
def test_the_sections_of_a_job_are_reached_by_buttons(pages: Pages) -> None:
    pages.open(job(DAG_ID, RESTARTED))
    pages.see_text("step 800 is on the store")
    assert pages.texts(".contents button") == [
        "Learning curves",
        "Results",
        "Changes",
        "Resources",
        "Timeline",
        "Time by phase",
        "Logs",
        "Specification",
    ]
    pages.press("Timeline")
    assert pages.driver.execute_script("return document.activeElement.textContent") == "Timeline"


@pytest.mark.long
def test_the_tab_on_a_task_instance(pages: Pages) -> None:
    run = seeded.summary(DAG_ID, FAILED).run_id.replace("+", "%2B")
    pages.open(f"/dags/{DAG_ID}/runs/{run}/tasks/train/plugin/training")
    pages.see_text(application_id(DAG_ID, FAILED))
    assert application_id(DAG_ID, 50 + FAILED) in pages.section("Other tries of this task")
    pages.open(f"/dags/{DAG_ID}/runs/{run}/tasks/prepare/plugin/training")
    pages.see_text("This task has not submitted a training job")
    refused = seeded.summary(DAG_ID, seeded.GAP).run_id.replace("+", "%2B")
    for each, job_text in ((refused, ""), (run, "MemoryError: cannot allocate 8.2 GiB")):
        pages.open(f"/dags/{DAG_ID}/runs/{each}/tasks/train/plugin/training")
        pages.see_text("Try 2 submitted no job, because its job was rejected at")
        pages.see_text("tasks.worker.memory: must be a size (got 'lots')")
        pages.see_text(job_text)
    photograph(pages.driver, "portal-refused")
    run = seeded.summary(SWEEP, 1).run_id.replace("+", "%2B")
    pages.open(f"/dags/{SWEEP}/runs/{run}/tasks/train/mapped/1/plugin/training")
    assert "train [1]" in pages.section("Run")


PATHS = {
    "jobs": JOBS,
    "no jobs": f"{JOBS}?text=no+such+job",
    "a job with restarts": job(DAG_ID, RESTARTED),
    "a failed job": job(DAG_ID, FAILED),
    "a running job": job(DAG_ID, seeded.RUNNING),
    "a lost job": job(MARKED, 0),
    "odd metrics": job(ODD, 0),
    "an unreachable store": job(SWEEP, 1),
    "a comparison": f"{JOBS}?compare={application_id(DAG_ID, 1)},{application_id(DAG_ID, RESTARTED)}",
    "dates": f"/dags/{DAG_ID}/plugin/trainings",
}


@contextmanager
def phone(driver: Chrome) -> Iterator[None]:
    metrics = {"width": PHONE, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        yield
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def open_whole(pages: Pages, path: str) -> None:
    """Open a page, wait until nothing is loading, and open what is folded."""
    pages.open(path)
    pages.see("section, table, .empty")
    until(lambda: not any(each.startswith("Loading") for each in pages.texts("p")), "what is loading")
    pages.driver.execute_script("document.querySelectorAll('.tony-portal details').forEach((each) => each.open = true)")
    until(lambda: not any(each.startswith("Loading") for each in pages.texts("p")), "what is folded")


@pytest.mark.long
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_axe_finds_nothing_in_both_themes(pages: Pages, path: str) -> None:
    open_whole(pages, path)
    assert violations(pages.driver, ".tony-portal") == []
    prefer(pages.driver, "dark")
    until(lambda: pages.driver.execute_script("return document.documentElement.matches('.dark')"), "the dark theme")
    assert violations(pages.driver, ".tony-portal") == []


@pytest.mark.long
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_on_a_phone_axe_finds_nothing_and_no_page_scrolls_sideways(pages: Pages, path: str) -> None:
    with phone(pages.driver):
        open_whole(pages, path)
        assert violations(pages.driver, ".tony-portal") == []
        wide = "const page = document.querySelector('.tony-portal'); return page.scrollWidth > page.clientWidth"
        assert not pages.driver.execute_script(wide)
        assert pages.driver.execute_script("return document.documentElement.scrollWidth") == PHONE


@pytest.mark.long
def test_on_a_phone_filters_are_opened_by_a_button_that_counts_them(pages: Pages) -> None:
    with phone(pages.driver):
        pages.open(f"{JOBS}?dag_id={DAG_ID}&verdict=FAILED")
        pages.see("table.jobs")
        assert not pages.see(".filters").is_displayed()
        pages.press("Filters (2 active)")
        assert pages.see(".filters").is_displayed()
        assert pages.see(".filters-toggle").get_attribute("aria-expanded") == "true"
        pages.press("Clear")
        until(lambda: pages.texts(".filters-toggle") == ["Filters"], lambda: str(pages.texts(".filters-toggle")))
    assert not pages.see(".filters-toggle").is_displayed()


@pytest.mark.long
def test_the_theme_is_airflows(pages: Pages) -> None:
    look = (
        "const style = getComputedStyle(document.querySelector('.tony-portal section'));"
        "return [style.backgroundColor, style.color]"
    )
    seen: dict[str, Any] = {}
    for scheme in ("light", "dark"):
        prefer(pages.driver, scheme)
        pages.open(job(DAG_ID, 1))
        pages.section("Summary")
        seen[scheme] = pages.driver.execute_script(look)
    assert seen["light"] != seen["dark"]


@pytest.mark.long
def test_keys_reach_everything(pages: Pages) -> None:
    pages.open(f"{JOBS}?dag_id={DAG_ID}")
    box = pages.see(f"input[aria-label$='{application_id(DAG_ID, 1)}']")
    pages.driver.execute_script("arguments[0].focus()", box)
    box.send_keys(Keys.SPACE)
    pages.see_text("1 of at most 8 jobs selected")
    assert pages.driver.switch_to.active_element == box  # the same one: nobody has lost their place
    box.send_keys(Keys.TAB)
    focused = "return [document.activeElement.innerText, getComputedStyle(document.activeElement).outlineStyle]"
    assert pages.driver.execute_script(focused) == [seeded.summary(DAG_ID, 1).name, "solid"]
    pages.driver.switch_to.active_element.send_keys(Keys.ENTER)
    pages.see_text("Time by phase")


def _has_column(pages: Pages, name: str) -> bool:
    return name in pages.texts("table.jobs thead th")


def _click(pages: Pages, element: WebElement, across: float, down: float) -> None:
    """At this part of its width and height, from its middle: -1 to 1."""
    pages.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    x, y = int(across * element.size["width"] / 2), int(down * element.size["height"] / 2)
    ActionChains(pages.driver).move_to_element_with_offset(element, x, y).pause(0.1).click().perform()
