"""What the page's routes answer, and what they refuse: in JSON, in one sentence, and the server stays up."""

import re
import threading

import pytest
import requests

from tests.helpers.serving.page_server import page_server
from xlnet_tf.errors import UserError


class ToyExplainer:
    """Answers without a model."""

    def __init__(self):
        self.entered, self.release = threading.Semaphore(0), threading.Event()

    def about(self):
        return {"name": "toy"}

    def fill(self, text, order=None, choices=()):
        if text == "wrong":
            raise UserError("One sentence.")
        if text == "broken":
            raise RuntimeError("/secret/path")
        return {"text": text, "order": order}

    def score(self, text, given=(), order=None):
        self.entered.release()
        self.release.wait(30)
        return {}

    look_inside = fill


@pytest.fixture(scope="module")
def explainer():
    return ToyExplainer()


@pytest.fixture(scope="module")
def address(explainer):
    with page_server(explainer) as address:
        yield address


def test_page_allows_itself_alone(address):
    page = requests.get(address)
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy and "*" not in policy and "http" not in policy
    assert policy.count("'sha256-") == 2
    assert "frame-ancestors 'none'" in policy and "require-trusted-types-for 'script'" in policy
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert not re.search(
        r"""(src|href)=["']?(https?:)?//|@import|url\(|\binnerHTML|\bstyle=|\son\w+=""", page.text
    )


def test_answers(address):
    assert requests.post(f"{address}/page/fill", json={"text": "ä", "order": [0]}).json() == {
        "text": "ä",
        "order": [0],
    }
    assert requests.post(f"{address}/page/fill", json={"text": "b"}, headers={"Origin": address}).ok
    about = requests.get(f"{address}/page/about").json()
    assert about["language_model"] == {"name": "toy"} and "reviews" in about["served"]


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("status", "options", "message"),
    [
        (400, {"json": {"text": "wrong"}}, "One sentence."),
        (500, {"json": {"text": "broken"}}, "log says why"),
        (400, {"json": {"order": []}}, "Expected an object with text"),
        (400, {"json": {"text": "", "layer": 0}}, "any of order, choices"),
        (400, {"data": b"{", "headers": JSON}, "not JSON"),
        (400, {"data": b'{"text": "a", "text": ""}', "headers": JSON}, '"text" is given twice'),
        (413, {"json": {"text": "a" * 70_000}}, "65,536 bytes"),
        (415, {"data": b'{"text": ""}', "headers": {"Content-Type": "text/plain"}}, "application/json"),
        (403, {"json": {"text": ""}, "headers": {"Origin": "http://other.example"}}, "other web sites"),
    ],
)
def test_refusals(address, status, options, message):
    answer = requests.post(f"{address}/page/fill", **options)
    assert answer.status_code == status
    assert message in answer.json()["error"]
    assert "Traceback" not in answer.text and "secret" not in answer.text
    assert requests.post(f"{address}/page/fill", json={"text": "b"}).ok


def test_one_request_computes_and_few_wait(address, explainer):
    statuses = []

    def score():
        statuses.append(requests.post(f"{address}/page/score", json={"text": "a"}).status_code)

    threads = [threading.Thread(target=score) for _ in range(20)]
    for thread in threads:
        thread.start()
    assert explainer.entered.acquire(timeout=10)
    while len(statuses) < 11:  # 1 computes, 8 wait
        threads[0].join(0.01)
    assert requests.get(address).ok
    explainer.release.set()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * 9 + [503] * 11


def test_without_a_language_model_its_routes_are_not_there():
    with page_server() as address:
        assert requests.get(f"{address}/page/about").json()["language_model"] is None
        assert requests.post(f"{address}/page/fill", json={"text": ""}).status_code == 404
