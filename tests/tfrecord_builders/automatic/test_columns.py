"""The task of a table follows from its columns; what they leave open is asked for in one line."""

import pytest

from tfrecord_builders.automatic.columns import find
from xlnet_tf.errors import UserError


@pytest.mark.parametrize(
    ("columns", "task", "found"),
    [
        ("text label", "classification", "text=text label=label"),
        ("id Review Sentiment", "classification", "text=Review label=Sentiment"),
        ("title text stars", "classification", "text=text label=stars"),
        ("premise hypothesis label", "pairs", "text_a=premise text_pair=hypothesis label=label"),
        ("question sentence label", "pairs", "text_a=question text_pair=sentence label=label"),
        ("id title context question answers", "question_answering",
         "context=context question=question answers=answers"),
        ("context question options answer", "multiple_choice",
         "options=options answer=answer context=context question=question"),
        ("id question choices choices.text choices.label answerKey", "multiple_choice",
         "options=choices.text answer=answerKey question=question"),
        ("id tokens pos_tags ner_tags", "tagging", "tokens=tokens tags=ner_tags"),
        ("query passage label", "ranking", "query=query passage=passage relevance=label"),
    ],
)  # fmt: skip
def test_usual_names(columns, task, found):
    result = find("a.csv", columns.split(), None, {})
    assert (result.task, result.columns) == (task, dict(role.split("=") for role in found.split()))


def test_flags_name_other_columns_and_decide():
    columns = ["body_text", "verdict", "label"]
    given = {"text": "body_text", "label": "verdict"}
    assert find("a.csv", columns, None, given).columns == given
    two = find("a.csv", ["a", "b", "label"], None, {"text": "a", "text_pair": "b"})
    assert two.columns == {"text_a": "a", "text_pair": "b", "label": "label"}
    ranking = find("a.csv", ["question", "answer", "label"], None, {"query": "question"})
    assert ranking.task == "ranking"


@pytest.mark.parametrize(
    ("columns", "task", "given", "message"),
    [
        ("a b", None, {}, "has the columns a, b: which has the text and which the label.*--text_c"),
        ("text b", None, {}, "has the label.? Say so with --label_column, or another task with --task"),
        ("text b", None, {"label": "c"}, "has no column 'c', only text, b: name the right one with --label"),
        ("text label", "tagging", {}, "which has the tokens and which the tags.? Say so with --tokens"),
        ("text label tokens tags", None, {}, r"may be for classification \(text, label\) or tagging "
         r"\(tokens, tags\): give --task=classification or --task=tagging"),
    ],
)  # fmt: skip
def test_what_is_open_is_asked_for(columns, task, given, message):
    with pytest.raises(UserError, match=message) as error:
        find("a.csv", columns.split(), task, given)
    assert "\n" not in str(error.value)
