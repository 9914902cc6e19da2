"""transformers, in its own process, loads what we save for it and gives the same answers to texts.

Its tokenizer of version 5 keeps "1999," as one piece and breaks ties of truncation otherwise (the last test):
the texts here have no comma after a digit, and an even number of tokens remains of a pair.
"""

import re

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import invent_texts
from tests.helpers import hugging_face
from tests.helpers.serving.toys import built
from xlnet_tf import task_registry
from xlnet_tf.checkpoints import open_checkpoint, save_checkpoint
from xlnet_tf.models.classifier import XLNetClassifier, XLNetRegressor
from xlnet_tf.models.head import XLNetHead, build_layer, logits_layer
from xlnet_tf.models.multiple_choice import XLNetMultipleChoice
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.models.question_answering import XLNetQuestionAnswering
from xlnet_tf.models.token_classifier import XLNetTokenClassifier
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.tokenizer import XLNetTokenizer

T, TARGET = 25, 20
THEIRS = """
import torch, transformers

@torch.no_grad()
def answer(folder, texts, pairs, length, target):
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, config.architectures[0])
    model, info = kind.from_pretrained(folder, output_loading_info=True)
    problems = [name for names in info.values() for name in names]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, use_fast=False)
    options = {"padding": "max_length", "truncation": True, "max_length": length, "return_tensors": "pt"}
    rows = dict(tokenizer(texts, pairs, **options))
    ids = rows["input_ids"].tolist()
    if config.architectures[0] == "XLNetForMultipleChoice":
        rows = {name: value.reshape(-1, 2, length) for name, value in rows.items()}
    if config.architectures[0] == "XLNetForQuestionAnswering":
        passage = (rows["attention_mask"] == 1) & (rows["token_type_ids"] != 1)
        rows["p_mask"] = 1 - passage.float()
        rows["cls_index"] = torch.full([len(ids)], length - 1)
    if config.architectures[0] == "XLNetLMHeadModel":
        rows["perm_mask"] = torch.zeros(len(ids), length, length)
        rows["perm_mask"][:, :, target] = 1
        rows["target_mapping"] = torch.zeros(len(ids), 1, length)
        rows["target_mapping"][:, 0, target] = 1
    outputs = {name: value.tolist() for name, value in model.eval()(**rows).items() if torch.is_tensor(value)}
    labels = [config.id2label[number] for number in sorted(config.id2label)]
    return {"ids": ids, "problems": problems, "kind": kind.__name__, "labels": labels, **outputs}
"""


class SimpleSpan(XLNetHead):
    """The start and end scores of XLNetForQuestionAnsweringSimple, for which no head of ours is."""

    def __init__(self, encoder):
        super().__init__(encoder)
        self.dense = logits_layer(2, encoder)

    def build_head(self, d_model):
        build_layer(self.dense, [None, None, d_model], "span_independent")

    def call(self, features, training=None):
        scores = self.dense(self.encode(features, training)[0])
        return {"start_logits": scores[:, :, 0], "end_logits": scores[:, :, 1]}


def of_choices(model, features):
    return {"logits": model({name: value.reshape(-1, 2 * T) for name, value in features.items()})}


def of_spans(model, features):
    passage = (features["input_mask"] == 1) & (features["input_type_ids"] != 1)
    found = model({**features, "answer_mask": passage})
    rows, end_top = len(passage), tf.exp(found["end_top_log_probs"])
    return {
        "start_top_index": found["start_top_index"],
        "start_top_log_probs": tf.exp(found["start_top_log_probs"]),  # no logs there
        "end_top_index": tf.reshape(tf.transpose(found["end_top_index"], [0, 2, 1]), [rows, -1]),
        "end_top_log_probs": tf.reshape(tf.transpose(end_top, [0, 2, 1]), [rows, -1]),
        "cls_logits": found["no_answer_logits"],
    }


def of_language(model, features):
    rows = len(features["input_word_ids"])
    ranks = np.zeros([rows, T], np.int32)
    ranks[:, TARGET] = 1
    targets = np.full([rows, 1], TARGET, np.int32)
    return {"logits": model({**features, "permutation_rank": ranks, "target_positions": targets})["logits"]}


def of_logits(model, features):
    return {"logits": model(features)}


def of_numbers(model, features):
    return {"logits": model(features)[:, None]}


def plain_texts(count, seed):
    return [re.sub(r"(?<=\d),", "", text) for text in invent_texts(count, seed)]


LABELS = ["bad", "fair", "good"]
MULTI = {"labels": LABELS, "multi_label": True, "summary": "last"}
TOP = {"start_top": 3, "end_top": 2}
# Our class, its arguments and options, what it answers, and the class of transformers after "XLNet".
HEADS = {
    "classes": (XLNetClassifier, (3,), {"labels": LABELS}, of_logits, "ForSequenceClassification"),
    "several_labels": (XLNetClassifier, (3,), MULTI, of_logits, "ForSequenceClassification"),
    "number": (XLNetRegressor, (), {}, of_numbers, "ForSequenceClassification"),
    "tags": (XLNetTokenClassifier, (3,), {"labels": LABELS}, of_logits, "ForTokenClassification"),
    "choices": (XLNetMultipleChoice, (2,), {}, of_choices, "ForMultipleChoice"),
    "spans": (XLNetQuestionAnswering, (), TOP, of_spans, "ForQuestionAnswering"),
    "simple_spans": (SimpleSpan, (), {}, SimpleSpan.__call__, "ForQuestionAnsweringSimple"),
    "language": (XLNetPretrainer, (), {}, of_language, "LMHeadModel"),
}


def test_every_task_that_hugging_face_has_is_compared():
    expected = {task.hugging_face for task in task_registry.tasks().values()} - {""}
    assert expected <= {f"XLNet{kind}" for *_, kind in HEADS.values()}


@pytest.mark.integration
@pytest.mark.parametrize("head", HEADS)
def test_transformers_gives_the_same_answers(tmp_path, small_tokenizer, head):
    model_class, arguments, options, ours, kind = HEADS[head]
    tokenizer = XLNetTokenizer(model_proto=small_tokenizer.model_proto, cleaning=CleaningConfig(lower=True))
    model = built(model_class, tokenizer, *arguments, **options)
    model.save_pretrained(tmp_path / "ours", tokenizer)
    save_checkpoint(open_checkpoint(tmp_path / "ours"), str(tmp_path / "theirs"), "hugging_face")
    texts, pairs = plain_texts(6, seed=7), [text.upper() for text in plain_texts(6, seed=8)]
    if head == "language":  # whose target is a token of every text
        texts, pairs = [f"{text} {text}" for text in texts], None
    given = {"texts": texts, "pairs": pairs, "length": T, "target": TARGET}
    theirs = hugging_face.ask(THEIRS, folder=str(tmp_path / "theirs"), **given)
    features = tokenizer(texts, pairs, max_length=T)
    assert (theirs["kind"], theirs["problems"]) == (f"XLNet{kind}", [])
    assert theirs["ids"] == features["input_word_ids"].tolist()
    if "labels" in options:
        assert theirs["labels"] == LABELS
    for name, values in ours(model, features).items():
        expected = np.reshape(theirs[name], values.shape)
        np.testing.assert_allclose(values, expected, atol=1e-4, rtol=1e-4, err_msg=name)


TOKENS = """
import transformers

def answer(folder, texts, pairs, length):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, use_fast=False)
    rows = tokenizer(texts, pairs, padding="max_length", truncation=True, max_length=length)
    return {
        "version": int(transformers.__version__.partition(".")[0]),
        "inputs": sorted(rows),
        "tokens": [tokenizer.convert_ids_to_tokens(ids) for ids in rows["input_ids"]],
    }
"""


@pytest.mark.integration
def test_what_the_tokenizer_of_transformers_5_does_otherwise(tmp_path, small_tokenizer):
    """docs/migrate/hugging-face.md tells its users."""
    small_tokenizer.save_pretrained(tmp_path)
    texts, pairs = ["ba ne 1999, ba", "do " * 9], ["su", "ba " * 9]
    theirs = hugging_face.ask(TOKENS, folder=str(tmp_path), texts=texts, pairs=pairs, length=14)
    ids = small_tokenizer(texts, pairs, max_length=14)["input_word_ids"]
    tokens = [small_tokenizer.convert_ids_to_tokens(row) for row in ids.tolist()]
    assert theirs["inputs"] == ["attention_mask", "input_ids", "token_type_ids"]
    if theirs["version"] < 5:
        assert theirs["tokens"] == tokens
        return
    comma, tie = theirs["tokens"]
    assert "▁1999," in comma
    assert "▁1999," not in tokens[0]
    assert [comma.index("<sep>"), tie.index("<sep>"), tokens[1].index("<sep>")] == [10, 5, 6]
