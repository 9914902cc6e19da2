"""Tags that mark no entities, such as parts of speech: one for each word, scored by accuracy."""

import numpy as np
import pytest

from tests.helpers.serving.toys import built
from tests.tasks.tagging.test_serving import OPTIONS, assert_like
from tests.tasks.tagging.test_task import settings, write_jsonl
from tfrecord_builders.tagging.build import TaggingOptions, build_tagging
from xlnet_tf.models.token_classifier import XLNetTokenClassifier
from xlnet_tf.tasks.tagging import task as tagging
from xlnet_tf.tasks.tagging.serving import TaggingModule

LABELS = ["ADJ", "NOUN", "VERB"]
TAG_OF = {"ba": "NOUN", "su": "VERB", "ne": "ADJ", "tor": "VERB"}


def sentences(count, seed):
    rng = np.random.default_rng(seed)
    for number in range(count):
        words = rng.choice(list(TAG_OF), rng.integers(2, 8)).tolist()
        yield {"id": f"s{number}", "tokens": words, "tags": [TAG_OF[word] for word in words]}


@pytest.fixture(scope="module")
def data(tmp_path_factory, small_tokenizer):
    folder = tmp_path_factory.mktemp("tags")
    (folder / "spiece.model").write_bytes(small_tokenizer.model_proto)
    files = {
        split: write_jsonl(folder / f"{split}.jsonl", sentences(count, count))
        for split, count in (("train", 120), ("dev", 20))
    }
    tokenizer = str(folder / "spiece.model")
    build_tagging(TaggingOptions(tokenizer, str(folder), seq_len=24, scheme="tags", **files))
    return folder


@pytest.mark.integration
def test_each_word_is_answered_with_its_tag(small_tokenizer, tmp_path):
    model = built(XLNetTokenClassifier, small_tokenizer, len(LABELS), labels=LABELS)
    module = TaggingModule(model, small_tokenizer, **OPTIONS)
    texts = ["ba (tor) su", "", "ne-ba"]
    (tmp_path / "tags").mkdir()
    answers, _ = assert_like(module, model, texts, tmp_path / "tags", **OPTIONS, scheme="tags", types=LABELS)
    assert answers["num_entities"].tolist() == [5, 0, 3]
    assert answers["entity"][0].tolist() == [b"ba", b"(", b"tor", b")", b"su"]


def test_accuracy_is_the_measure(data):
    task = tagging.TaggingTask(settings(data).task)
    assert task.BEST_METRIC == "accuracy"
    examples = task.validation_set
    gold = examples.column("tags")
    right = {"tags": np.maximum(gold, 0)}
    assert task.score(examples, right) == {"accuracy": 1.0}
    always = {"tags": np.full_like(gold, LABELS.index("VERB"))}
    assert task.score(examples, always)["accuracy"] == pytest.approx(task.constant_score(examples))
    assert "VERB" in task.tables(examples, always) and task.has_collapsed(examples, always)
