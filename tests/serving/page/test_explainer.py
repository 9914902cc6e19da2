"""What the page shows is what the model's other functions compute."""

import json

import numpy as np
import pytest

from tests.helpers.serving.toys import built
from xlnet_tf.errors import UserError
from xlnet_tf.generation.language_model import XLNetLanguageModel
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.serving.page.explainer import Explainer

TEXT = "ba <mask> ne <mask> tor <mask> mi"


@pytest.fixture(scope="module")
def model(small_tokenizer):
    return XLNetLanguageModel(built(XLNetPretrainer, small_tokenizer, layers=2), small_tokenizer)


@pytest.fixture(scope="module")
def explainer(model):
    return Explainer(model, "toy")


@pytest.mark.integration
def test_steps_of_filling_are_those_of_fill_mask(model, explainer):
    order = [2, 0, 1]
    [found] = model.fill_mask([TEXT], orders=[order], top_k=3)
    best = found.fillings[0]
    filled = explainer.fill(TEXT, order, best.pieces)
    np.testing.assert_allclose(
        [each["probability"] for each in filled["filled"]], best.probabilities, rtol=1e-3
    )
    np.testing.assert_allclose([each["alone"] for each in filled["filled"]], best.alone, rtol=1e-3)
    for step, gap in enumerate(order):
        candidates = {each["piece"]: each["probabilities"] for each in filled["gaps"][gap]}
        assert {len(values) for values in candidates.values()} == {step + 1}
        for guess in found.guesses_alone[step]:
            assert candidates[guess.piece][0] == pytest.approx(guess.probability, rel=1e-3)
        for guess in found.guesses[step]:
            assert candidates[guess.piece][step] == pytest.approx(guess.probability, rel=1e-3)


def test_later_choices_change_no_earlier_column(explainer):
    before = explainer.fill(TEXT, [1, 0, 2], [])
    after = explainer.fill(TEXT, [1, 0, 2], [before["gaps"][1][3]["piece"]])
    first = {each["piece"]: each["probabilities"][0] for each in before["gaps"][0]}
    columns = {each["piece"]: each["probabilities"] for each in after["gaps"][0]}
    for piece in first.keys() & columns.keys():
        assert columns[piece][0] == pytest.approx(first[piece], rel=1e-3)
    assert any(abs(values[1] - values[0]) > 1e-3 for values in columns.values())
    assert [token.get("gap") for token in before["tokens"]].count(0) == 1


@pytest.mark.parametrize("order", [[3, 0, 2, 1], [0, 1, 2, 3]])
def test_scores_are_those_of_the_model(model, explainer, order):
    found = explainer.score("ba ne kal su", [], order)
    expected = model.score(["ba ne kal su"], order=[order])[0]
    np.testing.assert_allclose(found["log_probabilities"], expected.log_probabilities, rtol=1e-3)
    assert found["total"] == pytest.approx(expected.total, rel=1e-3)
    assert found["pieces"] == expected.pieces


def test_given_pieces_are_context(model, explainer):
    found = explainer.score("ba ne kal su", [0, 1])
    expected = model.score(["kal su"], ["ba ne"])[0]
    assert found["log_probabilities"][:2] == [None, None]
    assert found["order"] == [2, 3]
    np.testing.assert_allclose(found["log_probabilities"][2:], expected.log_probabilities, rtol=1e-3)


def test_masks_follow_the_order(explainer):
    found = explainer.look_inside("ba ne kal su", given=[1], order=[3, 0, 2], layer=1)
    content = [[1, 1, 0, 1], [0, 1, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]]
    query = [[0, 1, 0, 1], [], [1, 1, 0, 1], [0, 1, 0, 0]]
    assert found["content"]["visible"] == content
    assert found["query"]["visible"] == query
    for stream in ("content", "query"):
        for head in found[stream]["attention"]:
            for row, visible in zip(head, found[stream]["visible"], strict=True):
                assert sum(row) == pytest.approx(float(bool(visible)), abs=1e-3)
                assert all(weight == 0 or seen for weight, seen in zip(row, visible))
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("fill", ["  "], "empty"),
        ("fill", ["ba ne"], "no gap"),
        ("fill", ["ba [MASK] <mask>"], "instead of"),
        ("fill", ["<mask>" * 17], "17 gaps; .* at most 16"),
        ("fill", ["<mask> " + "ba " * 300], "pieces; .* at most 256"),
        ("fill", ["<mask>", [1]], "each of 0 to 0"),
        ("fill", ["<mask>", [True]], "order is not a list"),
        ("fill", ["<mask>", [0], ["no such piece"]], '"no such piece" is not a piece'),
        ("fill", ["<mask>", [0], ["\u2581ba"] * 2], "at most as many pieces"),
        ("fill", ["\ud800 <mask>"], "surrogate"),
        ("score", [""], "empty"),
        ("score", ["b" * 5000], "5,000 characters"),
        ("score", ["ba ne", [0, 1]], "nothing to predict"),
        ("score", ["ba ne", [], [0, 0]], "each of 0 to 1 once"),
        ("score", ["ba ne", "0"], "given is not a list"),
        ("look_inside", ["ba " * 60], "at most 48"),
        ("look_inside", ["ba", [], None, None], "The layer is null; expected a number from 0 to 1"),
    ],
)
def test_one_sentence_says_what_is_wrong(explainer, method, arguments, message):
    with pytest.raises(UserError, match=message):
        getattr(explainer, method)(*arguments)
