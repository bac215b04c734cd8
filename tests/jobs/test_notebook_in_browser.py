"""A notebook on YARN in a real browser, through the tunnel: a cell is run and saved, and an open page keeps nothing."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By

from tests.browser import browser, photograph
from tests.jobs.opened_notebook import OpenedNotebook, job_file
from tests.jobs.places import LocalPlace, YarnPlace
from tests.jobs.test_notebook import SMALL, job_of, shut_down
from tests.kinds.environments import notebook_environment
from tests.waiting import until

NOTEBOOK = {
    "cells": [{"cell_type": "code", "execution_count": None, "id": "one", "metadata": {}, "outputs": [], "source": ""}],
    "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}
CODE = "print(6 * 7, open('job/words.txt').read())"
EDITOR = ".jp-Notebook .jp-Cell .cm-content"
OUTPUT = ".jp-OutputArea-output"


def outputs(opened: OpenedNotebook) -> str:
    """Of the first cell, as the file has it."""
    cell = opened.content("first.ipynb")["cells"][0]
    return "".join("".join(each.get("text", "")) for each in cell["outputs"])


def seen(driver: Chrome, css: str) -> Any:
    found = driver.find_elements(By.CSS_SELECTOR, css)
    try:
        return found[0] if found and found[0].is_displayed() else None
    except StaleElementReferenceException:  # JupyterLab has drawn it anew meanwhile
        return None


def printed(driver: Chrome) -> str:
    """What the page shows of the first cell's output."""
    output = seen(driver, OUTPUT)
    return str(output.text) if output is not None else ""


def has_idle_kernel(driver: Chrome) -> bool:
    bar = seen(driver, "#jp-main-statusbar")
    return bar is not None and "| Idle" in bar.text


def run(driver: Chrome, opened: OpenedNotebook, code: str) -> None:
    body = {"type": "notebook", "format": "json", "content": NOTEBOOK}
    opened.session.put(f"{opened.address}/api/contents/first.ipynb", json=body, timeout=60).raise_for_status()
    driver.get(opened.url.replace("/lab?", "/lab/tree/first.ipynb?"))
    editor = until(lambda: seen(driver, EDITOR), "the notebook's cell")
    until(lambda: has_idle_kernel(driver), "an idle kernel")  # JupyterLab asks which one, of whoever runs a cell before
    editor.click()
    ActionChains(driver).send_keys(code).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT).perform()


def run_and_save(driver: Chrome, opened: OpenedNotebook) -> None:
    run(driver, opened, CODE)
    until(lambda: "42 of the job" in printed(driver), lambda: printed(driver))
    ActionChains(driver).key_down(Keys.CONTROL).send_keys("s").key_up(Keys.CONTROL).perform()
    until(lambda: "42 of the job" in outputs(opened), "the saved notebook")
    photograph(driver, "notebook")


@pytest.mark.long
def test_a_cell_is_run_and_saved_and_a_page_left_open_does_not_keep_it(yarn: YarnPlace, tmp_path: Path) -> None:
    hook = yarn.hook()
    file = str(job_file(tmp_path, notebook_environment()))
    name = f"seen {uuid.uuid4().hex[:8]}"
    with browser() as driver:
        with OpenedNotebook(hook.tony_conn_id, file, "--name", name, "--idle", "45s", *SMALL) as opened:
            job = job_of(yarn, hook, opened.application_id)
            run_and_save(driver, opened)
            assert opened.end() == 0
            assert "The notebook has ended: no activity for" in opened.said
        job.succeeded()
        assert job.status().restarts == 0
        assert driver.find_elements(By.CSS_SELECTOR, EDITOR), "the page was not left open"
    with OpenedNotebook(hook.tony_conn_id, file, "--name", name, "--idle", "2s", *SMALL) as again:
        job_of(yarn, hook, again.application_id)
        assert "42 of the job" in outputs(again)
        assert again.end() == 0


@pytest.mark.long
def test_a_page_that_stayed_open_shows_what_was_printed_while_no_way_led_to_it(
    local: LocalPlace, tmp_path: Path
) -> None:
    hook = local.hook()
    file = str(job_file(tmp_path, notebook_environment()))
    go, gone = tmp_path / "go", tmp_path / "gone"
    with browser() as driver:
        with OpenedNotebook(hook.tony_conn_id, file, *SMALL) as opened:
            job = job_of(local, hook, opened.application_id)
            waiting = f"[None for _ in iter(pathlib.Path('{go}').exists, True)]"
            run(driver, opened, f"import pathlib; print('begun'); {waiting}; print('la' 'te'); open('{gone}', 'w')")
            until(lambda: "begun" in printed(driver), "the cell's first output")
            assert opened.interrupt() == 0
        go.touch()
        until(gone.exists, "the cell's end")
        port = str(urlsplit(opened.url).port)
        with OpenedNotebook(hook.tony_conn_id, "--name", "clicks", "--local-port", port) as back:
            assert back.application_id == opened.application_id
            until(lambda: "late" in printed(driver), lambda: printed(driver))
            shut_down(back)
    job.succeeded()
