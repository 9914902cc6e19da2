"""Every exported kind does what TensorFlow Serving asks of it, in a process that has TensorFlow alone."""

import os
import pickle
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import REPOSITORY
from tests.helpers.serving.exports import KINDS
from xlnet_tf.serving.answers.signatures import DTYPES, SERVING_DEFAULT
from xlnet_tf.serving.export import export
from xlnet_tf.serving.graph.exported_model import EXAMPLES, TOKENS

pytestmark = pytest.mark.integration
WARMUP_BATCHES = (1, 3)

# Operations of tensorflow_text that the server links: SUPPORTED_TENSORFLOW_OPS in tensorflow/serving's
# tensorflow_serving/model_servers/BUILD is tensorflow/text's ops_lib (tensorflow_text/BUILD), which has
# sentencepiece_tokenizer_cc and fast_sentencepiece_tokenizer_cc (core/ops/sentencepiece_ops.cc and
# core/ops/fast_sentencepiece_ops.cc there).
_BOTH = ("Tokenize", "TokenizeWithOffsets", "Detokenize")
LINKED = {f"Sentencepiece{name}Op" for name in ("", *_BOTH, "VocabSize", "IdToString", "StringToId")}
LINKED |= {f"TFText>FastSentencepiece{name}" for name in _BOTH}


class Export(NamedTuple):
    """An exported module and its model, what it was asked, and what came.

    Attributes:
        good: (signature, inputs) by names: "batch", "row 0", ..., "none", "tokens", "example SIGNATURE".
        bad: (signature, inputs) by (the input that is wrong, how, signature).
        result: see serving_process.main.
    """

    model: Any
    module: Any
    good: dict[str, tuple[str, dict[str, np.ndarray]]]
    bad: dict[tuple[str, str, str], tuple[str, dict[str, np.ndarray]]]
    result: dict[str, Any]


def as_array(values):
    to_bytes = np.frompyfunc(lambda text: text.encode() if isinstance(text, str) else text, 1, 1)
    return to_bytes(np.array(values, object))


def good_cases(kind, module, tokenizer):
    """Rows of texts, each of them alone, none of them, tokens, and the examples of all signatures."""
    columns = {name: as_array(values) for name, values in kind.rows(module).items()}
    rows = len(next(iter(columns.values())))
    parts = {"batch": slice(0, rows), "none": slice(0, 0)}
    parts |= {f"row {row}": slice(row, row + 1) for row in range(rows)}
    for name, part in parts.items():
        yield name, (SERVING_DEFAULT, {key: values[part] for key, values in columns.items()})
    tokens = tokenizer(["ba ne", "", "tor mi kal " * 9], ["su", "ren do", ""], seq_len=module.seq_len)
    yield "tokens", (TOKENS, {key: np.int32(values) for key, values in tokens.items()})
    for signature, inputs in module.example_inputs().items():
        yield f"example {signature}", (signature, inputs)


def bad_cases(module):
    """Each input of each signature with an axis too many, without its batch, with other rows, and missing."""
    for signature, inputs in module.example_inputs().items():
        for name, value in inputs.items():
            wrong = {"deep": inputs | {name: value[None]}, "flat": inputs | {name: value[0]}}
            wrong["missing"] = {other: inputs[other] for other in inputs if other != name}
            if len(inputs) > 1:
                wrong["doubled"] = inputs | {name: np.repeat(value, 2, axis=0)}
            for how, changed in wrong.items():
                yield (name, how, signature), (signature, changed)


# Several signatures and buckets; the others are as it is.
QUICK = {"classification"}


@pytest.fixture(scope="module")
def exports(small_tokenizer, tmp_path_factory, request):
    """The kinds that are to be tested, exported here, asked in another process."""
    folder = tmp_path_factory.mktemp("served")
    own = [item for item in request.session.items if item.module is request.module]
    parts, jobs = {}, {}
    for name in {item.callspec.params["exported"] for item in own}:
        kind = KINDS[name]
        model = kind.model(small_tokenizer)
        module = kind.module(model, small_tokenizer)
        path = export(module, str(folder / name), warmup_batches=WARMUP_BATCHES)
        good, bad = dict(good_cases(kind, module, small_tokenizer)), dict(bad_cases(module))
        parts[name], jobs[name] = (model, module, good, bad), (path, good | bad)
    (folder / "jobs").write_bytes(pickle.dumps(jobs))
    script = REPOSITORY / "tests" / "helpers" / "serving" / "serving_process.py"
    command = [sys.executable, "-I", str(script), "jobs", "results"]
    env = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = pickle.loads((folder / "results").read_bytes())
    assert results[""] == []  # nothing of this project, or of what it trains with, was there
    return {name: Export(*part, results[name]) for name, part in parts.items()}


@pytest.fixture(params=[pytest.param(kind, marks=[pytest.mark.long] * (kind not in QUICK)) for kind in KINDS])
def exported(exports, request):
    found = exports[request.param]
    assert "failure" not in found.result, found.result["failure"]
    return found


def assert_same(found, expected, names=()):
    """Asserts that answers are the same, all of them or those of some names."""
    assert isinstance(found, dict), found
    for name in names or {*found, *expected}:
        value, other = np.asarray(found[name]), np.asarray(expected[name])
        assert value.shape == other.shape, name
        if other.dtype.kind == "f":
            np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(value, other, err_msg=name)


def call(function, inputs):
    return function(**{name: tf.constant(value) for name, value in inputs.items()})


def test_texts_are_answered_as_by_the_training_model(exported):
    session = exported.result["session"]
    assert_same(session["batch"], call(exported.module.serve, exported.good["batch"][1]))
    assert_same(session[f"example {EXAMPLES}"], session[f"example {SERVING_DEFAULT}"])
    for signature in exported.result["signatures"]:
        if function := getattr(exported.module, signature, None):  # of language models: embed, score, ...
            name = f"example {signature}"
            assert_same(session[name], call(function, exported.good[name][1]))


def test_tokens_are_answered_as_by_the_training_model(exported, request):
    kind = KINDS[request.node.callspec.params["exported"]]
    if kind.answer is None:
        pytest.skip("tests/helpers/serving/exports.py does not say what this task answers")
    found = exported.result["session"]["tokens"]
    expected = kind.answer(exported.model, exported.good["tokens"][1])
    assert (names := set(found) & set(expected))
    assert_same(found, expected, names)


def test_methods_of_the_server_get_what_they_ask_for(exported):
    """As classifier.cc and regressor.cc in tensorflow_serving/servables/tensorflow check it."""
    asked = {
        "tensorflow/serving/classify": {"classes": (object, 2), "scores": (np.float32, 2)},
        "tensorflow/serving/regress": {"outputs": (np.float32, 1)},
    }
    for signature, method in exported.result["signatures"].items():
        if method != "tensorflow/serving/predict":
            example = f"example {signature}"
            assert set(exported.good[example][1]) == {"inputs"}
            answers = exported.result["session"][example]
            assert {name: (value.dtype, value.ndim) for name, value in answers.items()} == asked[method]


def test_a_row_alone_is_the_row_in_a_batch(exported):
    batch = exported.result["session"]["batch"]
    for row in range(len(next(iter(exported.good["batch"][1].values())))):
        for name, value in exported.result["session"][f"row {row}"].items():
            # The batch has room for what its longest row has.
            begin = (slice(row, row + 1), *map(slice, value.shape[1:]))
            assert_same({name: batch[name][begin]}, {name: value})
    none = exported.result["session"]["none"]
    assert {name: len(value) for name, value in none.items()} == dict.fromkeys(batch, 0)


def test_answers_are_the_same_in_a_session_and_have_rows_first_and_types_that_clients_know(exported):
    for name, (_, inputs) in exported.good.items():
        assert_same(exported.result["session"][name], exported.result["loaded"][name])
        rows = {len(value) for value in inputs.values()}
        for key, value in exported.result["session"][name].items():
            assert {value.shape[:1]} == {(row,) for row in rows}, f"{name}: {key}"
            assert value.dtype in DTYPES.values(), key
            assert value.dtype.kind != "f" or np.isfinite(value).all(), key  # JSON has no NaN


def test_the_warm_up_is_each_signature_with_each_batch_size(exported):
    expected = [
        (method.rsplit("/", 1)[-1], signature, size)
        for signature, method in exported.result["signatures"].items()
        for size in WARMUP_BATCHES
    ]
    session, found = exported.result["session"], []
    for method, signature, inputs, answers in exported.result["warmup"]:
        size = len(next(iter(inputs.values())))
        found.append((method, signature, size))
        alone = session[f"example {signature}"]
        assert_same(answers, {name: np.repeat(value, size, axis=0) for name, value in alone.items()})
    assert sorted(found) == sorted(expected)


def test_operations_are_those_of_the_server(exported):
    foreign = exported.result["foreign"]
    assert {"SentencepieceOp"} <= {operation for operation, _ in foreign} <= LINKED
    assert {device for _, device in foreign} <= {"/device:CPU:0"}  # a GPU has no kernels for them
    assert exported.result["compiled"] == []  # the server's binary has no compiler (tensorflow/serving#2214)
    assert exported.result["own_gradients"] == []


def test_wrong_inputs_are_refused_by_name(exported):
    for way in ("session", "loaded"):
        for case in exported.bad:
            outcome = exported.result[way][case]
            assert isinstance(outcome, str), f"{way}, {case}: {outcome}"
            assert case[0] in outcome, f"{way}, {case}: {outcome}"
