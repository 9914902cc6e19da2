"""The page in chromium, driven as people use it: with the mouse, with keys, narrow and in the dark."""

import itertools
import re
import shlex
import shutil

import numpy as np
import pytest
import requests

from tests.helpers.serving.page_server import HOSTILE, SERVED, page_server
from tests.helpers.serving.page_server import TEXT as TEXT_OF_EXAMPLES
from tests.helpers.serving.toys import built
from xlnet_tf.generation.language_model import XLNetLanguageModel
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.serving.page.explainer import Explainer

pytestmark = pytest.mark.integration
sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WIDER_THAN_THE_WINDOW = """() => {
    const isWide = each => each.getBoundingClientRect().right > innerWidth && !each.closest(".scroll");
    return document.documentElement.scrollWidth > innerWidth && ["the page"].concat(
        [...document.querySelectorAll("body *")].filter(isWide).map(each => each.tagName + each.className));
}"""
TEXT = "ba <mask> ne <mask> kal <mask>"


@pytest.fixture(scope="module")
def model(small_tokenizer):
    return XLNetLanguageModel(built(XLNetPretrainer, small_tokenizer, layers=2), small_tokenizer)


@pytest.fixture(scope="module")
def address(model):
    with page_server(Explainer(model, "toy")) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def problems():
    """What the page has written to the console, or thrown."""
    found = []
    yield found
    assert not found


@pytest.fixture
def page(browser, address, problems):
    context = browser.new_context(viewport={"width": 1000, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: message.type in ("error", "warning") and problems.append(message.text))
    open_page(page, address)
    yield page
    context.close()


def open_page(page, address):
    page.goto(address)
    page.wait_for_selector("#grids table")


def read(page, section, text):
    page.fill(f"#{section}-text", text)
    page.click(f"#{section} button[type=submit]")
    settle(page)


def settle(page):
    page.wait_for_selector("body:not(:has([aria-busy]))")


def order_of(page, section):
    return [
        int(item)
        for item in page.eval_on_selector_all(
            f"#{section}-order [data-item]", "all => all.map(each => each.dataset.item)"
        )
    ]


def test_filling_shows_how_probabilities_change(page, model):
    read(page, "fill", TEXT)
    assert page.locator("#gaps table").count() == 3
    assert page.locator("#gaps table").nth(1).locator("thead th").all_inner_texts() == [
        "Candidate",
        "text alone",
    ]
    page.select_option("#fill-preset", "backward")
    settle(page)
    page.click("#fill-all")
    page.wait_for_selector("#fill-next[disabled]")
    settle(page)
    assert order_of(page, "fill") == [2, 1, 0]
    choices = page.eval_on_selector_all("#sentence .filled", "all => all.map(each => each.firstChild.data)")
    # Step by step the likeliest: greedy search, which is beam search with one beam.
    [found] = model.fill_mask([TEXT], orders=[[2, 1, 0]], top_k=1)
    assert choices[::-1] == [piece.lstrip("\u2581") or "\u2423" for piece in found.fillings[0].pieces]
    together, apart = page.locator("#product p strong:last-child").all_inner_texts()
    assert (together, apart) == tuple(
        percent(product)
        for product in (found.fillings[0].probability, float(np.prod(found.fillings[0].alone)))
    )
    headers = page.locator("#gaps table").nth(0).locator("thead th").all_inner_texts()
    assert len(headers) == 4 and headers[1] == "text alone" and headers[2].startswith("+ gap 3")
    page.click("#fill-undo")
    settle(page)
    assert page.locator("#sentence .filled").count() == 2


def percent(p):
    return f"{p:.0%}".replace("%", " %") if p >= 0.0995 else f"{100 * p:.1f} %" if p >= 0.001 else "<0.1 %"


def test_a_chosen_candidate_fills_its_gap_next(page):
    read(page, "fill", TEXT)
    page.locator("#gaps .card").nth(1).locator("button").nth(2).click()
    page.wait_for_selector("#sentence .filled")
    settle(page)
    assert order_of(page, "fill") == [1, 0, 2]
    assert page.evaluate("document.activeElement.id") == "fill-next"
    assert re.match(r"Gap 2 is .*Gap 1: .* %.*Gap 3: ", page.inner_text("#live"))


def test_keys_and_mouse_reorder(page):
    read(page, "score", "ba ne kal su")
    first = page.inner_text("#totals tbody tr:first-child td")
    page.focus('#score-order [data-item="0"]')
    page.keyboard.press("Shift+ArrowRight")
    settle(page)
    assert order_of(page, "score") == [1, 0, 2, 3]
    assert page.inner_text("#score-preset option:checked") == "my own"
    page.keyboard.press("Shift+End")
    settle(page)
    assert order_of(page, "score") == [1, 2, 3, 0]
    assert page.evaluate("document.activeElement.dataset.item") == "0"
    page.click('#score-order [data-item="3"]')
    page.get_by_role("button", name="Earlier").last.click()
    settle(page)
    assert order_of(page, "score") == [1, 3, 2, 0]
    begin, end = (page.locator(f'#score-order [data-item="{item}"]').bounding_box() for item in (0, 1))
    page.mouse.move(begin["x"] + 9, begin["y"] + 9)
    page.mouse.down()
    page.mouse.move(end["x"] + 9, end["y"] + 9, steps=8)
    page.mouse.up()
    settle(page)
    assert order_of(page, "score") == [0, 1, 3, 2]
    rows = page.locator("#totals tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == ["left to right", "right to left", "this order (shown)"]
    assert page.inner_text("#totals tbody tr:first-child td") == first


def test_scores_are_the_models(page, model):
    read(page, "score", "ba ne kal su")
    page.select_option("#score-preset", "backward")
    settle(page)
    expected = model.score(["ba ne kal su"], order="right_to_left")[0]
    tiles = page.locator("#tiles button small:last-child").all_inner_texts()
    assert tiles == [f"{value:.2f}".replace("-", "\u2212") for value in expected.log_probabilities]
    page.locator("#tiles button").nth(1).click()
    page.wait_for_selector("#tiles .given")
    settle(page)
    assert order_of(page, "score") == [3, 2, 0]


def test_masks_and_attention(page):
    read(page, "score", "ba ne kal su")
    page.select_option("#score-preset", "backward")
    settle(page)

    def grid(stream):
        rows = page.locator("#grids table").nth(stream).locator("tbody tr")
        return [row.locator("td").all_inner_texts() for row in rows.all()]

    seen = [["seen" if key > query else "hidden" for key in range(4)] for query in range(4)]
    assert grid(1) == seen
    for number in range(4):
        seen[number][number] = "seen"
    assert grid(0) == seen
    page.select_option("#arrange", "order")
    assert [row.count("seen") for row in grid(0)] == [1, 2, 3, 4]
    page.click('#grids [data-query="0"] >> nth=1')
    assert "predicting \u201cba\u201d" in page.inner_text("#view h3")
    assert page.locator("#view .cut").count() == 1
    page.select_option("#show", "attention")
    page.select_option("#layer", "0")
    settle(page)
    assert page.locator("#heads canvas").count() == 2
    page.locator("#heads button").nth(1).click()
    assert page.input_value("#head") == "1"
    for row in grid(0):
        assert sum(int(cell) for cell in row if cell != "hidden") == pytest.approx(100, abs=2)


def test_errors_are_shown_and_the_page_can_be_used_again(page, problems):
    """The next request after an error needs the form, and the error must be seen."""
    page.select_option("#served-model", "stars")
    settle(page)
    page.route(
        "**/v1/models/stars:predict", lambda route: route.fulfill(status=503, json={"error": "Later."})
    )
    page.click("#served button[type=submit]")
    page.wait_for_selector("#served .error:has-text('Later.')")
    assert page.locator("#served-model").is_visible() and not page.locator("#answer").is_visible()
    page.unroute("**/v1/models/stars:predict")
    page.click("#served button[type=submit]")
    page.wait_for_selector("#answer:has-text('3.5')")
    assert page.inner_text("#served .error") == ""
    other = {"metadata": {"signature_def": {"signature_def": {"mine": {"inputs": {}, "outputs": {}}}}}}
    page.route("**/v1/models/reviews/metadata", lambda route: route.fulfill(json=other))
    page.select_option("#served-model", "reviews")
    page.wait_for_selector("#served .error:has-text('no signature serving_default')")
    assert page.locator("#inputs textarea").count() == 0
    page.select_option("#served-model", "stars")
    page.wait_for_selector("#input-text")
    read(page, "fill", "ba ne")
    assert page.inner_text("#fill .error") == "The text has no gap. Write <mask> where a piece is missing."
    read(page, "fill", TEXT)
    assert page.inner_text("#fill .error") == ""
    seen = ("503", "400 (Bad Request)")  # which the browser notes in the console
    problems[:] = [found for found in problems if not any(status in found for status in seen)]


def test_served_models_are_asked(page):
    def answer(name, **inputs):
        page.select_option("#served-model", name)
        for field in inputs:
            page.wait_for_selector(f"#input-{field}")
        settle(page)
        for field, value in inputs.items():
            page.fill(f"#input-{field}", value)
        page.click("#served button[type=submit]")
        page.wait_for_selector("#answer h3")
        return page.locator("#answer")

    assert "75 %" in answer("reviews", text="A").inner_text()
    marks = answer("entities", text="\U0001f600 Ada in Rome").locator("mark").all_inner_texts()
    assert marks == ["Ada PER 90 %", "Rome LOC 80 %"] or marks == ["AdaPER 90 %", "RomeLOC 80 %"]
    assert answer("answers", question="?", context="It is 1843.").locator("mark").count() == 1
    rows = answer("ranker", query="?", candidates="one\ntwo\n").locator("tbody th").all_inner_texts()
    assert rows == ["two", "one"]
    fields = page.eval_on_selector_all("#inputs textarea", "all => all.map(each => each.id)")
    assert fields == ["input-query", "input-candidates"]  # a text before the lists
    page.fill("#input-candidates", " \n")
    page.click("#served button[type=submit]")
    page.wait_for_selector("#served .error:has-text('There are no candidates: write one a line.')")
    assert "88 %" in answer("choices", context="", question="?", options="at noon\nat dawn").inner_text()
    assert "3.5" in answer("stars", text="A").inner_text()


def test_text_stays_text(page):
    read(page, "fill", f"{HOSTILE} <mask>")
    read(page, "score", HOSTILE)
    page.select_option("#served-model", "reviews")
    page.fill("#input-text", HOSTILE)
    page.click("#served button[type=submit]")
    page.wait_for_selector("#answer tbody")
    assert HOSTILE in page.inner_text("#answer")
    assert page.title().startswith("XLNet")
    assert page.locator("main img, main script, section script").count() == 0


def test_axe_finds_nothing(browser, address):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python"
    )
    found = []
    for scheme, width in itertools.product(("light", "dark"), (1000, 360)):
        # Axe is put into the page, which the page's policy forbids.
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True
        )
        page = context.new_page()
        open_page(page, address)
        read(page, "fill", TEXT)
        page.click("#fill-next")
        settle(page)
        page.select_option("#show", "attention")
        page.click("#served button[type=submit]")
        page.wait_for_selector("#answer h3")
        report = axe.Axe().run(page).response
        found += [
            (scheme, width, violation["id"], [node["target"] for node in violation["nodes"]][:3])
            for violation in report["violations"]
        ]
        wide = page.evaluate(WIDER_THAN_THE_WINDOW)
        found += [(scheme, width, "wide", wide)] if wide else []
        context.close()
    assert not found


@pytest.mark.parametrize("served", [{}, {"reviews": SERVED["reviews"]}, SERVED])
def test_without_a_language_model_nothing_speaks_of_one(browser, problems, served):
    """One classifier: what it is for, an example that fits, and how to ask it from a shell."""
    for scheme, width in itertools.product(("light", "dark"), (1000, 360)):
        with page_server(served=served) as address:
            context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
            page = context.new_page()
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.goto(address)
            page.wait_for_selector("#model code")
            if served:
                page.wait_for_selector("#curl")
            text = page.inner_text("body")
            assert "factorization" not in text and page.locator("nav").is_hidden()
            assert text.count("--language_model=FOLDER") == 1 and text.count("--model=FOLDER") == (not served)
            visible = [
                each.get_attribute("id") for each in page.locator("main > section").all() if each.is_visible()
            ]
            assert visible == ["served"] * bool(served)
            assert page.locator("#choice").is_visible() == (len(served) > 1)
            if served:
                assert page.inner_text("#task") == "Task: some task; one of bad, good."
                assert page.input_value("#input-text") == TEXT_OF_EXAMPLES
                assert "75 %" in ask_served(page)
                page.fill("#input-text", "It's new")
                arguments = shlex.split(page.inner_text("#curl"))
                assert arguments[::2] == ["curl", '{"inputs":{"text":["It\'s new"]}}']
                assert arguments[3] == f"{address}/v1/models/reviews:predict" and arguments[1] == "-d"
                assert requests.post(arguments[3], data=arguments[2]).ok
            assert (
                page.title() == page.inner_text("h1") == ("reviews" if len(served) == 1 else "Served models")
            )
            assert not page.evaluate(WIDER_THAN_THE_WINDOW)
            context.close()


def ask_served(page):
    page.click("#served button[type=submit]")
    page.wait_for_selector("#answer h3")
    return page.inner_text("#answer")


def test_without_served_models_nothing_speaks_of_them(page, browser, model):
    assert page.locator("#served").is_visible() and page.locator("nav li").last.is_visible()
    with page_server(Explainer(model, "toy"), served={}) as address:
        alone = browser.new_page()
        open_page(alone, address)
        assert alone.locator("#served").is_hidden() and alone.locator("nav li").last.is_hidden()
        assert alone.locator("nav li").first.is_visible() and alone.title().startswith("XLNet: what")
        alone.close()
