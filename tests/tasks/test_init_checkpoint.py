"""A fine-tuning run reads texts as its init_checkpoint does, and begins with its weights, or some of them."""

import json

import numpy as np
import pytest
import tf_keras
import yaml

from tests.helpers import tasks
from tests.helpers.training import toy_finetuning as toy
from xlnet_tf.checkpoints import open_checkpoint, save_checkpoint, save_model
from xlnet_tf.checkpoints.names import canonical
from xlnet_tf.errors import UserError
from xlnet_tf.hub import checksums
from xlnet_tf.tasks import prediction
from xlnet_tf.tasks.finetuning import finetune

READING = {"attention_type": "uni", "same_length": True, "clamp_len": 3}
DEFAULT = {"attention_type": "bi", "same_length": False, "clamp_len": -1}


@pytest.fixture(scope="module")
def data(tmp_path_factory, small_tokenizer):
    return toy.make_examples(tmp_path_factory.mktemp("data") / "train", small_tokenizer, 32)


def settings(data, init_checkpoint="", **model):
    params = toy.experiment()
    task = {"init_checkpoint": str(init_checkpoint), "epochs": 0.5, "model": model}
    params.override({"task": {"train_data": {"input_path": str(data.folder)}, **task}})
    return params


@pytest.fixture(scope="module", params=["ours", "hugging_face"])
def pretrained(request, data, tmp_path_factory):
    """A checkpoint that reads otherwise than by default; Hugging Face's says it in a file of its own."""
    folder = tmp_path_factory.mktemp("pretrained")
    save_model(toy.ToyTask(settings(data).task).build_model(), str(folder / "run"))
    (folder / "run" / "params.yaml").write_text(yaml.safe_dump({"task": {"model": READING}}))
    if request.param == "ours":
        return folder / "run"
    save_checkpoint(open_checkpoint(str(folder / "run")), str(folder / "theirs"), "hugging_face")
    (folder / "theirs" / "params.yaml").unlink()
    return folder / "theirs"


def reading(task):
    encoder = task.build_model().encoder
    return {name: getattr(encoder, name) for name in READING}


def test_reading_options_come_from_the_checkpoint_and_are_printed(data, pretrained, caplog):
    assert reading(toy.ToyTask(settings(data).task)) == DEFAULT and not caplog.text
    params = settings(data, pretrained)
    assert reading(toy.ToyTask(params.task)) == READING
    assert "reads texts with attention_type uni, same_length True, clamp_len 3, and so does" in caplog.text
    assert {name: getattr(params.task.model, name) for name in READING} == READING


@pytest.mark.parametrize("name", READING)
def test_a_setting_that_is_given_counts(data, pretrained, name):
    task = toy.ToyTask(settings(data, pretrained, **{name: DEFAULT[name]}).task)
    assert reading(task) == READING | {name: DEFAULT[name]}
    with pytest.raises(UserError, match=f"task.model.{name} is 2.5: expected a value like"):
        toy.ToyTask(settings(data, pretrained, **{name: 2.5}).task)


@pytest.mark.integration
def test_a_run_keeps_its_reading_options(data, pretrained, tmp_path):
    strategy = toy.strategy()
    for _ in range(2):  # the second resumes the first
        finetune(settings(data, pretrained), toy.ToyTask, strategy, str(tmp_path / "run"))
        with tasks.registered(toy.ENTRY):
            assert reading(prediction.Run.open(str(tmp_path / "run"), "").task) == READING


@pytest.mark.integration
def test_a_run_of_an_earlier_version_resumes(data, tmp_path):
    """It had one of these settings only, and read by the defaults of the others."""
    arguments = toy.ToyTask, toy.strategy(), str(tmp_path)
    finetune(settings(data), *arguments)
    file = tmp_path / "params.yaml"
    values = yaml.safe_load(file.read_text())
    assert values["task"]["model"].pop("attention_type") == "bi"
    assert values["task"]["model"].pop("same_length") is False
    file.write_text(yaml.safe_dump(values))
    finetune(settings(data), *arguments)


def test_other_cleaning_by_hugging_faces_files_is_refused(data, pretrained, tmp_path):
    save_checkpoint(open_checkpoint(str(pretrained)), str(tmp_path), "hugging_face")
    checksums.remove(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps({"do_lower_case": False}))
    toy.ToyTask(settings(data, tmp_path).task)
    file.write_text(json.dumps({"do_lower_case": True}))
    with pytest.raises(UserError, match="'lower': False.* by .*'lower': True.* build the examples with"):
        toy.ToyTask(settings(data, tmp_path).task)


def weights(model):
    return {canonical(variable.name): variable.numpy() for variable in model.variables}


def built(seed, params):
    tf_keras.utils.set_random_seed(seed)
    return toy.ToyTask(params.task).build_model()


@pytest.mark.parametrize(
    ("layers", "anew"),
    [
        (0, ()),
        (1, ("layer_1/", "summary/", "classification_task/")),
        (2, ("layer_0/", "layer_1/", "summary/", "classification_task/")),
    ],
)
def test_top_layers_and_all_above_begin_anew(data, tmp_path, layers, anew):
    params = settings(data, n_layer=2)
    save_model(model := built(1, params), str(tmp_path))  # with a head, as of a fine-tuned run
    params.override({"task": {"init_checkpoint": str(tmp_path), "reinit_layers": layers}})
    toy.ToyTask(params.task).initialize(begun := built(2, params))
    random, loaded, found = weights(built(2, params)), weights(model), weights(begun)
    assert all(any(name.startswith(part) for name in found) for part in anew)
    for name, value in found.items():
        np.testing.assert_array_equal(value, (random if name.startswith(anew) else loaded)[name], name)


def test_more_new_layers_than_there_are_or_no_checkpoint_is_refused(data, pretrained):
    params = settings(data, pretrained)
    for layers in (2, -1):
        params.task.reinit_layers = layers
        with pytest.raises(UserError, match=rf"reinit_layers\) is {layers}: expected 0 to 1, the layers of"):
            toy.ToyTask(params.task)
    params.override({"task": {"reinit_layers": 1, "init_checkpoint": ""}})
    with pytest.raises(UserError, match="without --init_checkpoint all layers begin with random weights"):
        toy.ToyTask(params.task)


@pytest.mark.integration
def test_a_run_with_new_layers_is_opened_and_resumed_by_its_setting_alone(data, tmp_path):
    save_model(built(1, settings(data)), str(tmp_path / "pretrained"))
    params = settings(data, tmp_path / "pretrained")
    params.override({"task": {"reinit_layers": 1, "epochs": 0.25}})
    arguments = toy.ToyTask, toy.strategy(), str(tmp_path / "run")
    finetune(params, *arguments)
    with tasks.registered(toy.ENTRY):
        prediction.Run.open(str(tmp_path / "run"), "")  # which knows of no init_checkpoint
    params.task.reinit_layers = 0
    with pytest.raises(UserError, match="task.reinit_layers: 1 there, 0 now"):
        finetune(params, *arguments)
