"""MLflow's UI as a person sees it: the study's table of trials, a trial, what came out."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Browser, open_browser
from tests.support.frontier_session import QUESTION, run_frontier_study
from tests.support.servers import Server, serve_ui

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser(2200, 1400) as opened:
        yield opened


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    runs: Path = tmp_path_factory.mktemp("runs")
    run_frontier_study(runs, "other")
    run_frontier_study(runs, "small-bert")
    with serve_ui(runs, "small-bert") as opened:
        yield opened


def address_of(server: Server, start: str) -> str:
    """What the command printed behind these words."""
    (line,) = [line for line in server.printed if line.startswith(start)]
    return line.removeprefix(start)


def open_trials(browser: Browser, server: Server) -> None:
    browser.open(address_of(server, "small-bert: "))
    browser.wait_for_text("matching runs", "bermo λ=")


def test_the_address_opens_the_studys_trials_with_the_columns_that_matter(
    browser: Browser, server: Server
) -> None:
    open_trials(browser, server)
    browser.take_screenshot("trials")
    # Two fusions, two seeds, one dense and three pruned trials of each; and the study's own run.
    browser.wait_for_text("17 matching runs")
    heads = [head.get_attribute("col-id") for head in browser.find_all(".ag-header-cell")]
    assert {
        "tags.`bermo.status`", "metrics.`metric`", "metrics.`remaining`", "params.`fusion.name`",
        "params.`pruning.method`", "params.`pruning.multiplier`",
        "params.`optimizer.learning_rate`", "params.`optimizer.score_learning_rate`",
        "params.`seed`",
    } <= set(heads)  # fmt: skip
    assert "Model training" in browser.text
    assert "Detect Issues" not in browser.text  # the page of language-model traces


def test_a_trial_that_diverged_looks_so(browser: Browser, server: Server) -> None:
    open_trials(browser, server)
    (link, *_) = browser.wait_until(
        lambda: [a for a in browser.find_all("a[href*='/runs/']") if "diverged" in a.text],
        "a trial that diverged",
    )
    browser.click(link)
    browser.wait_for_text("Diverged: the loss is nan at step 7", "Failed")
    browser.take_screenshot("diverged")


def test_a_trial_has_its_metrics_data_and_model(browser: Browser, server: Server) -> None:
    open_trials(browser, server)
    name = re.compile(r"bermo λ=[\d.]+ seed [01] \d+ % 0\.\d{3}")
    (link, *_) = browser.wait_until(
        lambda: [a for a in browser.find_all("a[href*='/runs/']") if name.fullmatch(a.text)],
        "a pruned trial of BERMo",
    )
    browser.click(link)
    browser.wait_for_text("Metrics (", "remaining", "Finished", "bermo-l0-", "tense")
    browser.take_screenshot("trial")


def test_the_studys_run_has_question_verdict_figure_and_links(
    browser: Browser, server: Server
) -> None:
    browser.open(address_of(server, "what came out: "))
    browser.wait_for_text(QUESTION, "BERMo, Table 4", "hypervolume/bermo", "remaining_at_0.97/last")
    (more, *_) = browser.wait_until(
        lambda: [b for b in browser.find_all("button") if b.text == "Show more"], "Show more"
    )
    browser.click(more)
    browser.wait_for_text("Trials on the frontier", "trials.parquet")
    width, height = browser.wait_for_image("img[src*='get-artifact']")
    browser.take_screenshot("study")
    assert width == 760
    assert height > 300
    (trial, *_) = browser.find_all("table a[href*='/runs/']")
    browser.open(trial.get_attribute("href"))  # a click would open it in another tab
    browser.wait_for_text("About this run", "bermo.recipe", "Model training")


def test_the_experiment_lists_its_studies(browser: Browser, server: Server) -> None:
    open_trials(browser, server)
    browser.wait_for_text(QUESTION)
    (link,) = browser.wait_until(
        lambda: browser.find_all("a[href*='viewStateShareKey=other']"),
        "a link to the other study",
    )
    browser.open(link.get_attribute("href"))
    browser.wait_for_text("17 matching runs", "bermo λ=")
    assert "tags.`bermo.study` = 'other'" in [
        box.get_attribute("value") for box in browser.find_all("input, textarea")
    ]
