"""A language model exported for OpenVINO answers as in TensorFlow, and in a process without it."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.models import uncached
from tests.helpers.serving import without_tensorflow
from xlnet_tf.errors import UserError
from xlnet_tf.generation.language_model import XLNetLanguageModel
from xlnet_tf.serving.answers.answering import as_bytes
from xlnet_tf.serving.answers.signatures import SERVING_DEFAULT
from xlnet_tf.serving.export import export_openvino
from xlnet_tf.serving.graph.exported_model import EXAMPLES, TOKENS
from xlnet_tf.serving.local.openvino_model import OpenVinoModel
from xlnet_tf.serving.page.explainer import Explainer
from xlnet_tf.serving.sources import open_embedder
from xlnet_tf.tasks.pretraining.serving import LanguageModelModule

pytest.importorskip("openvino")
pytestmark = pytest.mark.integration  # the conversion of eight graphs takes a while

PROMPTS = ["ba ne tor", "", "mi kal su ren do ba ne tor mi", "Su 12, ren."]
MARKED = ["ba <mask> <mask> tor", "<mask>", "ne <mask> mi kal su <mask> ren do <mask>", "<mask>ba"]


@pytest.fixture(scope="module")
def model(small_tokenizer):
    config = dataclasses.replace(uncached.CONFIG, n_token=small_tokenizer.vocab_size, n_layer=2)
    return XLNetLanguageModel(uncached.random_model(config), small_tokenizer)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "language-model"
    export_openvino(LanguageModelModule(model.model, model.tokenizer, seq_len=64), str(folder), "float32")
    return folder


@pytest.fixture(scope="module")
def exported(folder):
    return XLNetLanguageModel.from_pretrained(folder)


def plain(value):
    """Returns results as lists, dicts and numbers that pytest.approx compares."""
    if dataclasses.is_dataclass(value):
        return plain(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(each) for each in value]
    return pytest.approx(value, abs=1e-5) if isinstance(value, (float, np.floating)) else value


@pytest.mark.parametrize(
    ("method", "texts", "options"),
    [
        ("generate", PROMPTS, {"max_new_tokens": 6, "temperature": 0}),
        ("generate", PROMPTS, {"max_new_tokens": 6, "seed": 3, "top_p": 0.8, "stop": ["."]}),
        ("generate", PROMPTS, {"max_new_tokens": 6, "forbid": ["▁ba"], "repetition_penalty": 1.3}),
        ("search", PROMPTS, {"max_new_tokens": 4, "beams": 3}),
        ("fill_mask", MARKED, {"top_k": 3}),
        ("infill", MARKED, {"seed": 2}),
        ("infill", MARKED, {"seed": 2, "orders": "easiest_first"}),
        ("score", PROMPTS, {"order": "random", "seed": 1, "batch_size": 3}),
        ("score", PROMPTS, {"contexts": PROMPTS[::-1], "order": "right_to_left"}),
        ("embed", PROMPTS, {"tokens": True}),
        ("embed", PROMPTS, {"layer": 0}),
    ],
)
def test_each_method_answers_the_same(model, exported, method, texts, options):
    found, expected = (getattr(each, method)(texts, **options) for each in (exported, model))
    assert plain(found) == plain(expected)


def test_embedders_and_their_layers(model, folder):
    parameters = sum(weight.shape.num_elements() for weight in model.model.weights)
    assert (folder / "1/graphs/language_model.bin").stat().st_size < 1.3 * 4 * parameters  # stored once
    for layer in (-1, 0):
        found = open_embedder(str(folder), layer=layer).load()(PROMPTS, True)
        assert plain(found) == plain(model.embed(PROMPTS, tokens=True, layer=layer))
    with pytest.raises(UserError, match="layer is 2; the model has layers 0 to 1"):
        open_embedder(str(folder), layer=2)
    with pytest.raises(UserError, match="keeps the type that it has"):
        open_embedder(str(folder), weights="bfloat16")


def test_widths_that_groups_of_4_bits_do_not_divide(model, tmp_path):
    module = LanguageModelModule(model.model, model.tokenizer, seq_len=64)
    export_openvino(module, str(tmp_path / "small"), "int4")
    small = XLNetLanguageModel.from_pretrained(tmp_path / "small")
    [found], [expected] = (each.score(["ba ne tor mi kal"]) for each in (small, model))
    np.testing.assert_allclose(found.total, expected.total, rtol=0.1)
    assert found.total != expected.total


def test_what_an_export_cannot_do_is_refused(exported, folder, tmp_path):
    with pytest.raises(UserError, match="fixes attention_type: leave them out"):
        XLNetLanguageModel.from_pretrained(folder, attention_type="uni")
    with pytest.raises(UserError, match="has no weights to save: copy its folder"):
        exported.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="no attention: give the weights that were exported"):
        Explainer(exported, "model")
    with pytest.raises(UserError, match=r"has 5,\d+ pieces; expected at most 4,096 .* The weights that"):
        exported.score(["ba " * 5000])


def test_a_served_language_model_answers_as_its_savedmodel(model, folder):
    """What it does with each row is tested in tests/tasks/pretraining/test_answering.py."""
    module = LanguageModelModule(model.model, model.tokenizer, seq_len=64)
    served, requests = OpenVinoModel(str(folder / "1")), module.example_inputs()
    served.warm_up()
    assert served.signatures.keys() == requests.keys() - {EXAMPLES, TOKENS}
    for name in served.signatures:
        texts = {key for key, values in requests[name].items() if values.dtype == object}
        inputs = {key: as_bytes(v) if key in texts else v for key, v in requests[name].items()}
        served.check(name, inputs)
        tensors = {key: tf.constant(v.tolist(), tf.as_dtype(v.dtype)) for key, v in inputs.items()}
        expected = (module.serve if name == SERVING_DEFAULT else getattr(module, name))(**tensors)
        for key, values in served.run(name, inputs).items():
            wanted = np.asarray(expected[key])
            if values.dtype.kind == "f":
                shape = tuple(map(slice, wanted.shape))
                np.testing.assert_allclose(values[shape], wanted, atol=1e-4, err_msg=f"{name} {key}")
            else:
                np.testing.assert_array_equal(values, wanted, err_msg=f"{name} {key}")


@pytest.fixture
def command(tmp_path):
    """Returns a function that runs a command without TensorFlow and returns what it prints."""

    def run(*words):
        done = without_tensorflow.run(tmp_path, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_commands_need_no_tensorflow(model, folder, command):
    loaded = f"--model_dir={folder}"
    greedy = model.generate(["ba ne"], max_new_tokens=4, temperature=0)[0].whole
    flags = ["--prompt=ba ne", "--max_new_tokens=4", "--temperature=0"]
    assert command("generate", loaded, *flags) == f"{greedy}\n"
    best = model.fill_mask(["ba <mask> ne"])[0].fillings[0].text
    assert best in command("fill-mask", loaded, "--text=ba <mask> ne")
    total = model.score(["ba ne tor"])[0].total
    assert f"{total:.2f} nats" in command("score", loaded, "--text=ba ne tor")
    vector = json.loads(command("embed", loaded, "--text=ba ne"))["embedding"]
    np.testing.assert_allclose(vector, model.embed(["ba ne"]).mean[0], atol=1e-5)


@pytest.mark.parametrize("name", ["embed", "score"])
def test_corpora_are_answered_without_tensorflow(model, folder, command, tmp_path, name):
    texts = ["ba ne tor", "mi kal", "su ren do ba ne tor mi", "ba"]
    corpus, output = tmp_path / "corpus.jsonl", tmp_path / "answers"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    flags = [f"--model_dir={folder}", f"--data={corpus}", f"--output_dir={output}", "--num_workers=1"]
    assert "4 rows, 0 failed" in command(name, *flags)
    [shard] = output.glob("*-of-00001.jsonl")
    rows = [json.loads(line) for line in shard.read_text().splitlines()]
    assert [row["text"] for row in rows] == texts
    found = [row[{"embed": "embedding", "score": "log_probability"}[name]] for row in rows]
    expected = model.embed(texts).mean if name == "embed" else [each.total for each in model.score(texts)]
    np.testing.assert_allclose(found, expected, atol=1e-4)
