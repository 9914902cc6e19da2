"""Submissions to GLUE and the recipes of classification, one of them on real sentences."""

import numpy as np
import pytest
import yaml
from official.core import exp_factory
from official.modeling import hyperparams

from tests.conftest import REPOSITORY, invent_texts
from tfrecord_builders.classification.build import ClassificationOptions, build_classification
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.tasks.classification import task as classification

RECIPES = REPOSITORY / "run_scripts/recipes"


@pytest.fixture(scope="module")
def glue(tmp_path_factory, small_tokenizer):
    """A made-up MNLI and STS-B with their test files, built with the presets."""
    folder = tmp_path_factory.mktemp("glue")
    (folder / "spiece.model").write_bytes(small_tokenizer.model_proto)
    texts = invent_texts(5)
    for name, labels, label in (
        ("mnli", ["neutral", "entailment", "contradiction"] * 2, "gold_label"),
        ("sts-b", ["0.0", "5.0", "2.5"] * 2, "score"),
    ):
        data = folder / name
        data.mkdir()
        header = ["sentence1", "sentence2"]
        rows = ["\t".join([text, texts[0]]) for text in texts]
        labelled = "\n".join(["\t".join([*header, label]), *map("\t".join, zip(rows, labels))]) + "\n"
        unlabelled = "\n".join(["\t".join(header), *rows, "\t" + texts[0]]) + "\n"
        for split in ("train", "dev", "dev_matched", "dev_mismatched"):
            (data / f"{split}.tsv").write_text(labelled)
        for split in ("test", "test_matched", "test_mismatched", "diagnostic"):
            (data / f"{split}.tsv").write_text(unlabelled)
        paths = {"tokenizer": str(folder / "spiece.model"), "output_dir": str(data / "records")}
        build_classification(ClassificationOptions(preset=name, data_dir=str(data), seq_len=32, **paths))
    return folder


@pytest.mark.parametrize(
    ("name", "split", "submission"),
    [
        ("mnli", "test_matched", "MNLI-m.tsv"),
        ("mnli", "test_mismatched", "MNLI-mm.tsv"),
        ("mnli", "test_diagnostic", "AX.tsv"),
        ("sts-b", "test", "STS-B.tsv"),
    ],
)
def test_submissions_are_as_glue_wants_them(glue, tmp_path, name, split, submission):
    data = glue / name
    params = exp_factory.get_exp_config(classification.EXPERIMENT)
    params.task.train_data.input_path = str(data / "records/train")
    task = classification.ClassificationTask(params.task)
    examples = ExampleSet.load(data / "records" / split)
    labels = examples.settings["labels"]
    if name == "mnli":
        outputs = np.eye(3, dtype=np.float32)[[0, 1, 2, 1, 0, 2]]
        assert labels == ["contradiction", "entailment", "neutral"]
        expected = [labels[index] for index in (0, 1, 2, 1, 0, 2)]
    else:
        outputs = np.array([-0.5, 0.1234, 5.5, 3, 4.9996, 2.5], np.float32)
        expected = ["0.000", "0.123", "5.000", "3.000", "5.000", "2.500"]
    paths = task.write_predictions(examples, {"outputs": outputs}, str(tmp_path))
    assert paths[-1] == str(tmp_path / submission)
    header, *rows = [line.split("\t") for line in (tmp_path / submission).read_text().splitlines()]
    assert header == ["index", "prediction"]
    # The last text is empty: it has a line all the same.
    assert rows == [[str(index), value] for index, value in enumerate(expected)]


# The authors' table: batch, learning rate, steps, warm-up.
GLUE = {
    "qqp": (128, 3e-5, 14000, 1000),
    "mnli": (128, 3e-5, 10000, 1000),
    "sst-2": (32, 2e-5, 10000, 1000),
    "cola": (128, 3e-5, 3000, 500),
    "sts-b": (32, 5e-5, 1200, 120),
    "mrpc": (32, 5e-5, 800, 200),
    "rte": (32, 3e-5, 800, 200),
    "qnli": (128, 3e-5, 10000, 1000),
    "wnli": (32, 3e-5, 800, 200),
}


@pytest.mark.parametrize("path", sorted(RECIPES.glob("glue/*.yaml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("size", ["large", "base"])
def test_recipes_of_glue(path, size):
    params = exp_factory.get_exp_config(classification.EXPERIMENT)
    for file in (RECIPES / f"glue_{size}.yaml", path):
        hyperparams.override_params_dict(params, yaml.safe_load(file.read_text()), is_strict=True)
    optimizer = params.trainer.optimizer_config
    found = params.task.train_data.global_batch_size, optimizer.learning_rate, params.trainer.train_steps
    assert (*found, optimizer.warmup_steps) == GLUE[path.stem]
    assert params.task.model.preset == size and optimizer.weight_decay == 0.01 and optimizer.epsilon == 1e-6


@pytest.mark.parametrize(
    "name", ["imdb_large", "yelp5_large", "financial_phrasebank", "chnsenticorp", "clicks"]
)
def test_other_recipes_are_valid_and_give_way_to_the_small_one(name):
    params = exp_factory.get_exp_config(classification.EXPERIMENT)
    for file in (f"{name}.yaml", "classification_small.yaml"):
        override = yaml.safe_load((RECIPES / file).read_text())
        hyperparams.override_params_dict(params, override, is_strict=True)
        if file.startswith(name):
            assert params.trainer.optimizer_config.learning_rate <= 3e-5
    assert params.trainer.train_steps == 0 and params.task.model.architecture(100).n_layer == 2
