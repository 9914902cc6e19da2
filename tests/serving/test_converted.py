"""What is served of a checkpoint does not depend on the format that it was converted to."""

import dataclasses
import functools
import json

import numpy as np
import pytest
import tensorflow as tf
import yaml

from run_scripts.convert_checkpoint import convert as convert_script
from tests.helpers.models.checkpoints import CONFIGS, random_checkpoint
from tests.helpers.serving.exports import KINDS
from tests.helpers.serving.toys import built
from xlnet_tf import task_registry
from xlnet_tf.checkpoints import Checkpoint, names, open_checkpoint, save_checkpoint, save_model
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.errors import UserError
from xlnet_tf.hub import checksums
from xlnet_tf.models.classifier import XLNetClassifier, XLNetRegressor
from xlnet_tf.models.multiple_choice import XLNetMultipleChoice, XLNetRanker
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.models.question_answering import XLNetQuestionAnswering
from xlnet_tf.models.token_classifier import XLNetTokenClassifier
from xlnet_tf.serving.sources import open_served

pytestmark = pytest.mark.usefixtures("eagerly")  # no graph is traced for the few answers
LABELS = ["bad", "fair", "good"]
TEXTS = ["1999, Was Old", "a NEW one , 2008, and  more", "", "Ba né tor mi kal"]


def convert(source, folder, format, dropped=()):
    checkpoint = open_checkpoint(str(source))
    kept = Arrays({name: entry for name, entry in checkpoint.arrays.entries.items() if name not in dropped})
    save_checkpoint(dataclasses.replace(checkpoint, arrays=kept), str(folder), format)
    return folder


def ours(folder, tokenizer, manifest=None, **options):
    """A classifier as `save_model` writes it, its tokenizer, and, if there is one, a run's manifest."""
    save_model(built(XLNetClassifier, tokenizer, 3, labels=LABELS, **options), str(folder))
    (folder / "spiece.model").write_bytes(tokenizer.model_proto)
    if manifest:
        (folder / "manifest.json").write_text(json.dumps({"kind": "examples"} | manifest))
    return folder


def theirs(folder, tokenizer, fields, tokenizer_fields=None):
    """A classifier of Hugging Face's with fields of its config.json."""
    convert(ours(folder / "source", tokenizer), folder / "theirs", "hugging_face")
    checksums.remove(folder / "theirs")
    config = folder / "theirs" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | fields))
    if tokenizer_fields:
        (folder / "theirs" / "tokenizer_config.json").write_text(json.dumps(tokenizer_fields))
    return folder / "theirs"


def answers(folder):
    module = open_served(str(folder), head="classification", seq_len=16).load()
    return {name: value.numpy() for name, value in module.serve(text=tf.constant(TEXTS)).items()}


CONTEXT = "1999, was old and a new one came in 2008, and more"


TAGGER = functools.partial(XLNetTokenClassifier, labels=["O", "B-A", "I-A"])
ASKED = {"question": TEXTS, "context": [CONTEXT, "", CONTEXT * 3, "ba ne"]}
CHOICE = {"context": [CONTEXT] * 4, "question": TEXTS, "options": [["ba", "ne _ tor", ""]] * 4}
SERVED = [
    ("classification", XLNetClassifier, (3,), {}, {"text": TEXTS}),
    ("tagging", TAGGER, (3,), {}, {"text": TEXTS}),
    ("regression", XLNetRegressor, (), {}, {"text": TEXTS}),
    ("regression", XLNetRegressor, (), {"pair": True}, {"text_a": TEXTS, "text_b": TEXTS[::-1]}),
    ("question_answering", XLNetQuestionAnswering, (), {"max_question_len": 10, "threshold": 0.1}, ASKED),
    ("choice", XLNetMultipleChoice, (3,), {"max_qa_len": 10}, CHOICE),
    ("ranking", XLNetRanker, (2,), {"max_query_len": 10},
     {"query": TEXTS, "candidates": [[CONTEXT, "ba", ""]] * 4}),
]  # fmt: skip
_HERE = {task_registry.canonical(head) for head, *_ in SERVED}
SERVED += [(task, None, (), {}, None) for task in task_registry.tasks() if task not in _HERE]


def cases():
    """Yields each head in each format, and whether the weights lack what only pretraining needs."""
    for served in SERVED:
        for format in ("ours", "original", "hugging_face"):
            quick = served[0] == "question_answering" and format == "hugging_face"
            marks = [] if quick else [pytest.mark.integration]
            for is_fine_tuned in (
                (True, False) if served[0] == "classification" else (format == "hugging_face",)
            ):
                yield pytest.param(format, is_fine_tuned, *served, marks=marks)


@pytest.mark.parametrize(
    ("format", "is_fine_tuned", "head", "model_class", "arguments", "lengths", "inputs"), cases()
)
def test_every_head_is_served(
    tmp_path, small_tokenizer, format, is_fine_tuned, head, model_class, arguments, lengths, inputs
):
    kind = KINDS[task_registry.canonical(head)]
    model = built(model_class, small_tokenizer, *arguments) if model_class else kind.model(small_tokenizer)
    save_model(model, str(tmp_path / "source"))
    folder = convert(tmp_path / "source", tmp_path / "converted", format, [names.QUERY_START] * is_fine_tuned)
    (folder / "spiece.model").write_bytes(small_tokenizer.model_proto)
    given = {name: value for name, value in lengths.items() if name in ("pair", "threshold")}
    found = open_served(str(folder), head=head, seq_len=24, **given).load()
    expected = task_registry.find(head).load("serving")(model, small_tokenizer, seq_len=24, **lengths)
    inputs = {name: tf.constant(values) for name, values in (inputs or kind.rows(found)).items()}
    found, expected = found.serve(**inputs), expected.serve(**inputs)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("summary", ["mean", pytest.param("first", marks=pytest.mark.integration)])
def test_no_answer_depends_on_padding(tmp_path, small_tokenizer, summary):
    """Not of Hugging Face's weights, whose models pool padding, nor of a model that does so in training."""
    folder = theirs(tmp_path, small_tokenizer, {"summary_type": summary})
    (folder / "spiece.model").write_bytes(small_tokenizer.model_proto)
    model, pooled = (XLNetClassifier.from_pretrained(folder, **o) for o in ({}, {"pool_padding": True}))
    alone = [tf.nn.softmax(model(model.tokenizer([text], padding=False)))[0].numpy() for text in TEXTS]
    padded = model.tokenizer(TEXTS, seq_len=64)
    order = np.argsort(1 - padded["input_mask"], axis=1, kind="stable")
    on_the_right = {name: np.take_along_axis(value, order, axis=1) for name, value in padded.items()}
    for features in (padded, on_the_right):
        np.testing.assert_allclose(tf.nn.softmax(model(features)), alone, atol=1e-6)
    for answering in (model, pooled):
        found = [list(answer["probabilities"].values()) for answer in answering.answer(TEXTS)]
        np.testing.assert_allclose(found, alone, atol=1e-6)
    assert pooled.pooling.pool_padding  # calls of the model still do
    for weights, atol in (("float32", 1e-6), ("int8", 0.02), ("bfloat16", 0.02)):
        module = open_served(str(folder), seq_len=64, buckets=[64]).load(weights)
        found = module.serve(text=tf.constant(TEXTS))["probabilities"]
        np.testing.assert_allclose(found, alone, atol=atol)


@pytest.mark.parametrize("head", task_registry.names())
def test_no_random_head_is_served(tmp_path, small_tokenizer, head):
    save_model(built(XLNetPretrainer, small_tokenizer), str(tmp_path))
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto)
    message = f"has no head for {task_registry.canonical(head)}; expected weights that were fine-tuned"
    with pytest.raises(UserError, match=message):
        open_served(str(tmp_path), head=head, seq_len=24).load()


def test_one_of_several_heads_is_served(tmp_path, small_tokenizer):
    entries = {}
    for head_name, size in (("stars", 5), ("mood", 2)):
        save_model(built(XLNetClassifier, small_tokenizer, size, head_name), str(tmp_path / head_name))
        checkpoint = open_checkpoint(tmp_path / head_name)
        entries |= checkpoint.arrays.entries
    save_checkpoint(Checkpoint("", "ours", Arrays(entries), checkpoint.config), str(tmp_path), "ours")
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto)
    with pytest.raises(UserError, match="several heads for classification: give head_name, one of mood, sta"):
        open_served(str(tmp_path), head="classification", seq_len=24).load()
    with pytest.raises(UserError, match="no head for classification called age"):
        open_served(str(tmp_path), head="classification", head_name="age", seq_len=24).load()
    with pytest.raises(UserError, match="lm_bias, the language-model head.*but has classification_"):
        open_served(str(tmp_path), head="language_model", seq_len=24).load()
    for head_name, size in (("stars", 5), ("mood", 2)):
        arguments = {"head": "classification", "head_name": head_name, "seq_len": 24}
        assert len(open_served(str(tmp_path), **arguments).load().labels) == size


def assert_same_model(converted, source):
    """Weights, labels, cleaning, and how texts are read."""
    found, expected = map(XLNetClassifier.from_pretrained, (converted, source))
    assert found.get_config() == expected.get_config()
    assert found.tokenizer.cleaning == expected.tokenizer.cleaning
    found, expected = answers(converted), answers(source)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("several", [False, True])
def test_problem_type_decides_whether_classes_are_exclusive(tmp_path, small_tokenizer, several):
    kind = "multi_label" if several else "single_label"
    folder = theirs(tmp_path, small_tokenizer, {"problem_type": f"{kind}_classification"})
    model = XLNetClassifier.from_pretrained(folder)
    assert model.multi_label == several == model.get_config()["multi_label"]
    logits = model(small_tokenizer(TEXTS, seq_len=16))
    expected = tf.sigmoid(logits) if several else tf.nn.softmax(logits)
    found = answers(folder)
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)
    assert ("assigned" in found) == several
    new = XLNetClassifier.from_pretrained(folder, ["no", "yes"], head_name="other")
    assert not new.multi_label  # what the old head's classes are says nothing of them


def test_classes_that_do_not_exclude_each_other_are_written(tmp_path, small_tokenizer):
    for kind, expected in (("multi_label", "multi_label"), ("classification", "single_label")):
        settings = {"labels": LABELS, "kind": kind}
        run = ours(tmp_path / kind, small_tokenizer, {"task": "classification", "settings": settings})
        folder = convert(run, tmp_path / f"{kind}-hf", "hugging_face")
        written = json.loads((folder / "config.json").read_text())["problem_type"]
        assert written == f"{expected}_classification"
        for converted in (folder, convert(folder, tmp_path / f"{kind}-back", "ours")):
            assert XLNetClassifier.from_pretrained(converted).multi_label == (kind == "multi_label")


THEIR_FIELDS = {
    "problem_type": "multi_label_classification",
    "id2label": {str(index): label for index, label in enumerate(LABELS)},
    "summary_type": "mean",
    "clamp_len": 2,
    "attn_type": "uni",
    "same_length": True,
}


@pytest.mark.parametrize("format", ["ours", "original"])
def test_a_model_of_hugging_face_is_the_same_model_in_other_formats(tmp_path, small_tokenizer, format):
    source = theirs(tmp_path, small_tokenizer, THEIR_FIELDS, {"do_lower_case": True, "keep_accents": True})
    assert_same_model(convert(source, tmp_path / "converted", format), source)


RUN = {
    "task": "classification",
    "settings": {"labels": LABELS, "kind": "multi_label"},
    "cleaning": {"lower": True, "keep_accents": True, "normalize_quotes": True, "collapse_whitespace": False},
}
RUN_SETTINGS = {
    "summary": "mean", "clamp_len": 2, "attention_type": "uni", "same_length": True,
    "dropout": 0.3, "attention_dropout": 0.2, "initializer_range": 0.5,
}  # fmt: skip


@pytest.mark.integration
@pytest.mark.parametrize("projection", [True, False])
def test_a_run_is_the_same_model_by_hugging_faces_files_alone(tmp_path, small_tokenizer, projection):
    run = ours(tmp_path / "run", small_tokenizer, RUN, summary="mean", projection=projection)
    params = {"task": {"model": RUN_SETTINGS}}
    (run / "params.yaml").write_text(yaml.safe_dump(params))
    folder = convert(run, tmp_path / "theirs", "hugging_face")
    assert_same_model(folder, run)
    for name in ("params.yaml", "manifest.json"):
        (folder / name).unlink()
    assert json.loads((folder / "config.json").read_text()) == {
        "architectures": ["XLNetForSequenceClassification"], "model_type": "xlnet", "layer_norm_eps": 1e-12,
        "vocab_size": small_tokenizer.vocab_size, "n_layer": 1, "d_model": 16, "n_head": 2, "d_head": 8,
        "d_inner": 20, "ff_activation": "gelu_new", "untie_r": True, "mem_len": None,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 5,
        "attn_type": "uni", "same_length": True, "clamp_len": 2,
        "summary_type": "mean", "summary_use_proj": projection,
        "summary_activation": "tanh" if projection else "",  # transformers 5 takes no null
        "dropout": 0.3, "summary_last_dropout": 0.3, "initializer_range": 0.5,
        "num_labels": 3, "id2label": {"0": "bad", "1": "fair", "2": "good"},
        "label2id": {"bad": 0, "fair": 1, "good": 2},
        "problem_type": "multi_label_classification", "finetuning_task": "task",
    }  # fmt: skip
    assert json.loads((folder / "tokenizer_config.json").read_text()) == {
        "tokenizer_class": "XLNetTokenizer", "do_lower_case": True, "keep_accents": True,
        "remove_space": False, "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }  # fmt: skip
    assert_same_model(folder, run)  # the files alone say it, too


def test_all_hugging_face_fields_round_trip(tmp_path, small_tokenizer):
    fields = THEIR_FIELDS | {"dropout": 0.4, "start_n_top": 3, "task_specific_params": {"a": [1]}}
    fields |= {"label2id": {label: index for index, label in enumerate(LABELS)}, "summary_activation": "relu"}
    source = theirs(tmp_path, small_tokenizer, fields, {"do_lower_case": True, "model_max_length": 7})
    back = convert(convert(source, tmp_path / "ours", "ours"), tmp_path / "back", "hugging_face")
    (found, tokenizer), (expected, given) = (
        [json.loads((folder / name).read_text()) for name in ("config.json", "tokenizer_config.json")]
        for folder in (back, source)
    )
    assert found == expected and tokenizer.items() >= given.items()
    with pytest.raises(UserError, match="config.json: summary_activation is 'relu'; expected 'tanh', which"):
        XLNetClassifier.from_pretrained(back)


def test_any_finetuning_task_names_a_head_and_is_kept(tmp_path, small_tokenizer):
    task, head_name = "sentiment analysis: v2", "sentiment-analysis--v2"
    for other, expected in (("glue/sst2", "glue-sst2"), ("ü_1.b", "-_1.b")):
        source = theirs(tmp_path / expected, small_tokenizer, {"finetuning_task": other})
        assert XLNetClassifier.from_pretrained(source).head_name == expected
    source = theirs(tmp_path, small_tokenizer, {"finetuning_task": task})
    back = convert(convert(source, tmp_path / "ours", "ours"), tmp_path / "back", "hugging_face")
    for folder in (source, tmp_path / "ours", back):
        assert XLNetClassifier.from_pretrained(folder).head_name == head_name
    assert json.loads((back / "config.json").read_text())["finetuning_task"] == task
    np.testing.assert_array_equal(answers(back)["probabilities"], answers(source)["probabilities"])


@pytest.mark.parametrize(
    ("settings", "heads", "cleaning", "message"),
    [
        ({}, ["classification_a"], {}, None),
        ({"summary": "mean"}, ["classification_a"], {}, "summary mean takes in padding"),
        ({"summary": "attn"}, ["classification_a"], {}, "cannot be built with summary attn"),
        ({}, ["classification_a", "regression_b"], {}, "have no classification_a, regression_b"),
        ({"segment_len": 4}, ["classification_a"], {}, "not in segments"),
        ({"attention_type": "uni"}, [], {}, "fails for batches with masks"),
        ({"uniform_when_blind": False}, ["lm_bias"], {}, "may see nothing"),
        ({"uniform_when_blind": True}, ["lm_bias"], {}, None),
        ({}, [], {"normalize_quotes": False}, "normalize quotes"),
        ({"dropout": 0.1, "attention_dropout": 0.2}, [], {}, "attention has dropout 0.1, too, not 0.2"),
    ],
)
def test_what_hugging_face_does_otherwise_is_printed(tmp_path, settings, heads, cleaning, message):
    variables = [f"{head}/logits/{name}" for head in heads for name in ("kernel", "bias")]
    variables = ["lm_bias"] if heads == ["lm_bias"] else variables
    save_checkpoint(random_checkpoint(CONFIGS["micro"], variables), str(tmp_path / "run"), "ours")
    (tmp_path / "run" / "params.yaml").write_text(yaml.safe_dump({"task": {"model": settings}}))
    (tmp_path / "run" / "manifest.json").write_text(json.dumps({"cleaning": cleaning}))
    arguments = str(tmp_path / "run"), str(tmp_path / "hf"), "hugging_face", None
    notes = [line for line in convert_script(*arguments, strict=True).splitlines() if line[:5] == "note:"]
    assert len(notes) == (message is not None) and (not message or message in notes[0])


def test_only_pooling_heads_store_pooling_options(tmp_path, small_tokenizer):
    """Hugging Face's defaults are left to a head that a pretrained model may get there."""
    for head, fields in (("lm_bias", set()), ("choice/logits/bias", {"use_proj", "activation"})):
        save_checkpoint(random_checkpoint(CONFIGS["micro"], [head]), str(tmp_path / head), "hugging_face")
        written = json.loads((tmp_path / head / "config.json").read_text())
        found = {name for name in written if name.startswith("summary")}
        assert found == {f"summary_{name}" for name in fields}
    source = theirs(tmp_path, small_tokenizer, THEIR_FIELDS | {"bi_data": True}, {})
    done = convert_script(str(source), str(tmp_path / "again"), "hugging_face", None, strict=True)
    assert "note: its bi_data reads the second half of each batch backward" in done
