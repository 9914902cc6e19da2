"""The package's names are there, and importing it loads nothing heavy."""

import ast
import json
import os
import pathlib
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import tf_keras

import xlnet_tf
from tests.helpers.zipfile_fault import needs_sound_zipfile
from tests.tfrecord_builders.conftest import build, corpus_file, small_records, tokenizer_file

__all__ = ["build", "corpus_file", "small_records", "tokenizer_file"]  # fixtures

LIGHT = """
import os, sys
import xlnet_tf
print(*dir(xlnet_tf))
from xlnet_tf import UserError, XLNetConfig, XLNetTokenizer

heavy = {"tensorflow", "tf_keras", "keras", "official", "torch"} & set(sys.modules)
assert not heavy, heavy
assert os.environ["TF_USE_LEGACY_KERAS"] == "1"
"""


def test_the_package_loads_no_tensorflow_and_lists_public_names_only():
    result = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == sorted(xlnet_tf.__all__)
    assert not [name for name in xlnet_tf.__all__ if name.startswith("_")]


INSTALLED = """
from importlib import resources
import run_scripts, tfrecord_builders, xlnet_tf
assert xlnet_tf.XLNetConfig
assert (resources.files("run_scripts") / "recipes" / "base.yaml").is_file()
"""


def test_packages_and_recipes_are_installed_outside_the_checkout(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", INSTALLED]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, f"run `make setup`, which installs the project\n{result.stderr}"


ALIASES = {
    "XLNetBackbone": "XLNetEncoder",
    "XLNetChoice": "XLNetMultipleChoice",
    "XLNetSpan": "XLNetQuestionAnswering",
    "XLNetTagger": "XLNetTokenClassifier",
}


@pytest.mark.parametrize("name", xlnet_tf.__all__)
def test_a_public_name_is_a_class_of_that_name_or_an_alias(name):
    found, expected = getattr(xlnet_tf, name), ALIASES.get(name, name)
    assert found.__name__ == expected and found is getattr(xlnet_tf, expected)


def test_editors_see_every_lazy_name():
    tree = ast.parse(pathlib.Path(xlnet_tf.__file__).read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        name.asname: node.module.removeprefix("xlnet_tf.")
        for node in block.body
        for name in node.names
        if name.asname == name.name
    }
    assert seen == xlnet_tf._MODULES


@needs_sound_zipfile
def test_models_saved_under_earlier_class_names_load(tmp_path):
    from xlnet_tf import XLNetConfig, XLNetEncoder, XLNetTokenClassifier

    encoder = XLNetEncoder(XLNetConfig(n_token=50, n_layer=1, d_model=8, n_head=2, d_head=4, d_inner=8))
    model = XLNetTokenClassifier(encoder, 3, labels=["O", "B", "I"])
    model.build()
    model.save(tmp_path / "tagger.keras")
    with zipfile.ZipFile(tmp_path / "tagger.keras") as file:
        saved = json.loads(file.read("config.json"))
    assert saved["registered_name"] == "xlnet_tf>XLNetTagger"
    restored = tf_keras.models.load_model(tmp_path / "tagger.keras")
    assert type(restored) is XLNetTokenClassifier
    np.testing.assert_array_equal(restored.dense.kernel, model.dense.kernel)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("TFXLNetForSequenceClassification", "XLNetClassifier"),
        ("AutoModelForQuestionAnswering", "XLNetQuestionAnswering"),
        ("XLNetLMHeadModel", "XLNetLanguageModel"),
        ("pipeline", "XLNetClassifier.from_pretrained"),
        ("XLNetClasifier", "XLNetClassifier"),
    ],
)
def test_a_name_of_another_library_is_answered_with_ours(name, instead):
    for statement in (f"from xlnet_tf import {name}", f"import xlnet_tf; xlnet_tf.{name}"):
        with pytest.raises(ImportError, match=f"^xlnet_tf has no {name}: write {instead}"):
            exec(statement)


@pytest.mark.parametrize(
    ("statement", "instead"),
    [
        ("XLNetClassifier.from_preset('x')", "XLNetClassifier has no 'from_preset': write from_pretrained"),
        ("XLNetConfig.from_pretrained('x')", "XLNetConfig has no 'from_pretrained': use .*read_architecture"),
        ("XLNetConfig(vocab_size=50)", "unknown option vocab_size: write n_token"),
        ("XLNetConfig.preset('micro', num_layers=2)", "unknown option num_layers; .*did you mean n_layer"),
        ("XLNetBackbone(XLNetConfig(), mem_len=5)", "unknown option mem_len: write memory_len"),
        ("XLNetLanguageModel.generate(None, ['a'], do_sample=True)", "unknown option do_sample"),
    ],
)
def test_calls_of_other_libraries_are_answered_with_ours(statement, instead):
    with pytest.raises((AttributeError, xlnet_tf.UserError), match=instead):
        eval(statement, vars(xlnet_tf) | {name: getattr(xlnet_tf, name) for name in dir(xlnet_tf)})


@pytest.fixture
def small_model():
    config = xlnet_tf.XLNetConfig(n_token=50, n_layer=1, d_model=8, n_head=2, d_head=4, d_inner=8)
    return xlnet_tf.XLNetClassifier(xlnet_tf.XLNetEncoder(config), 2, labels=["a", "b"])


@pytest.mark.parametrize("method", ["__call__", "predict", "fit", "evaluate"])
def test_inputs_of_other_libraries_are_answered_with_what_to_write(small_model, method):
    for texts in ("a text", ["a", "b"], np.array(["a"]), ("a",)):
        with pytest.raises(xlnet_tf.UserError, match=r"write model.answer\(texts\) for answers"):
            getattr(small_model, method)(texts)
    features = {"input_ids": np.int32([[9, 4, 3]]), "attention_mask": np.ones([1, 3], np.int32)}
    with pytest.raises(xlnet_tf.UserError, match="write input_mask for attention_mask, input_word_ids for"):
        getattr(small_model, method)(features)


def test_attributes_of_another_library_are_answered_with_what_to_write(small_tokenizer, small_model):
    with pytest.raises(AttributeError, match="XLNetTokenizer has no 'encode_plus': call it: tokenizer"):
        small_tokenizer.encode_plus("a")
    assert not hasattr(small_tokenizer, "encode_plus")
    with pytest.raises(AttributeError, match="XLNetClassifier has no 'push_to_hub': use save_pretrained"):
        small_model.push_to_hub("me/model")
    with pytest.raises(AttributeError, match="has no attribute 'XLNetPoet'"):
        xlnet_tf.XLNetPoet  # noqa: B018


def test_what_is_no_text_no_number_and_no_path_is_named(small_tokenizer):
    with pytest.raises(xlnet_tf.UserError, match="texts is one NoneType; expected a list of strings"):
        small_tokenizer(None)
    with pytest.raises(xlnet_tf.UserError, match="max_length is '8'; expected a whole number of tokens"):
        small_tokenizer("a", max_length="8")
    for path in (None, 5):
        with pytest.raises(xlnet_tf.UserError, match=f"the model is {path!r}; expected the path of a folder"):
            xlnet_tf.XLNetClassifier.from_pretrained(path)
