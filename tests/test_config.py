"""XLNetConfig reads what was released and refuses what no network can be built from."""

import dataclasses
import json

import pytest
import tensorflow as tf

from xlnet_tf.config import PRESETS, XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.models.pretrainer import XLNetPretrainer
from xlnet_tf.tasks.model_config import EncoderModelConfig

RELEASED = {
    "base": {"d_head": 64, "d_inner": 3072, "d_model": 768, "n_head": 12, "n_layer": 12},
    "large": {"d_head": 64, "d_inner": 4096, "d_model": 1024, "n_head": 16, "n_layer": 24},
}


# As a later version may have it.
Newer = dataclasses.make_dataclass(
    "Newer", [("window", int, dataclasses.field(default=0, kw_only=True))], bases=(XLNetConfig,), frozen=True
)


@pytest.mark.parametrize("name", RELEASED)
def test_released_configs_are_presets_also_for_a_version_with_more_fields(name, tmp_path):
    released = {**RELEASED[name], "ff_activation": "gelu", "n_token": 32000, "untie_r": True}
    path = tmp_path / "xlnet_config.json"
    path.write_text(json.dumps(released))
    assert XLNetConfig.from_json_file(path) == XLNetConfig.preset(name)
    newer = Newer.from_json_file(path)
    assert newer == Newer(**released)
    for config in (XLNetConfig.preset(name), newer):
        assert json.loads(config.to_json()) == released  # by which the versions before can read it
    path.write_text(Newer(window=3).to_json())
    assert json.loads(path.read_text())["window"] == 3 == Newer.from_json_file(path).window
    with pytest.raises(UserError, match="xlnet_config.json: fields unknown window; expected"):
        XLNetConfig.from_json_file(path)


@pytest.mark.parametrize("field", dataclasses.fields(XLNetConfig), ids=lambda field: field.name)
def test_settings_of_a_task_change_every_field_of_the_preset(field):
    value = {int: field.default * 2, bool: not field.default, str: "relu"}[field.type]
    settings = EncoderModelConfig(preset="base")
    assert settings.architecture(vocab_size=32000) == XLNetConfig()
    settings.override({field.name: value})
    assert settings.architecture(vocab_size=32000) == XLNetConfig(**{field.name: value})


def test_presets_take_changes():
    assert XLNetConfig.preset("tiny", n_token=123).n_token == 123
    with pytest.raises(UserError, match="no preset is called 'huge'.*tiny"):
        XLNetConfig.preset("huge")


def test_parameter_count_of_base():
    with tf.Graph().as_default():  # which gives weights no values
        model = XLNetPretrainer(XLNetEncoder(PRESETS["base"]))
        model.build()
    assert model.count_params() == 116_750_336
    assert 116_750_336 * 0.99 < PRESETS["base"].num_weights < 116_750_336  # the matrices are nearly all


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 7}, "d_model is 7; expected an even number"),
        ({"n_layer": 0}, "n_layer is 0, expected 1 to 1024"),
        ({"n_head": 2.0}, "n_head is 2.0, expected a whole number of 1 to"),
        ({"ff_activation": "tanh"}, "ff_activation is 'tanh', expected one of gelu, relu"),
        ({"d_model": 10**5, "d_inner": 10**5}, "XLNetConfig has .*; expected at most 5,000,000,000"),
    ],
)
def test_errors_name_the_field(changes, message):
    with pytest.raises(UserError, match=message):
        XLNetConfig.preset("micro", **changes)


@pytest.mark.parametrize("memory_len", [-1, 65537, 10**9])
def test_a_memory_that_no_machine_can_hold_is_refused(memory_len):
    with pytest.raises(
        UserError, match=f"memory_len is {memory_len}; expected 0 .no memory. to 65536 tokens"
    ):
        XLNetEncoder(PRESETS["micro"], memory_len=memory_len)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "xlnet_config.json"
    for text, message in (
        (
            '{"n_layer": 3, "colour": 1}',
            "fields missing d_head, d_inner, .*, n_token, untie_r; unknown colour",
        ),
        ("{", "is not JSON"),
        ("[]", "holds a list"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=f"xlnet_config.json:? {message}"):
            XLNetConfig.from_json_file(path)
