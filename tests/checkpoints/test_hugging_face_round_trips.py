"""A model in Hugging Face's format answers as before, or `differences` says what it does otherwise."""

import itertools

import numpy as np
import pytest

from tests.helpers.models import heads
from tests.helpers.profiles import pairs
from tests.helpers.training import programs
from xlnet_tf import task_registry
from xlnet_tf.checkpoints import differences, open_checkpoint, save_checkpoint
from xlnet_tf.config import XLNetConfig
from xlnet_tf.layers.summary import METHODS
from xlnet_tf.models.head import PooledHead

CONFIG = XLNetConfig(n_token=50, n_layer=1, d_model=16, n_head=2, d_head=8, d_inner=20)
POOLED = {name: issubclass(task.load("model"), PooledHead) for name, task in task_registry.tasks().items()}
READINGS = [{"summary": s, "projection": p} for s, p in itertools.product(METHODS, (True, False))]
CASES = [
    *pairs(READINGS, [name for name, is_pooled in POOLED.items() if is_pooled]),
    *(({}, name) for name, is_pooled in POOLED.items() if not is_pooled),
]


@pytest.mark.parametrize(("options", "name"), CASES, ids=lambda value: str(value).replace(" ", ""))
def test_every_head_answers_as_before_or_the_difference_is_noted(tmp_path, name, options):
    template = programs.model_of(name, CONFIG, initializer_range=0.4)
    values = template.get_config()
    choices = {"num_choices": heads.CHOICES} if "num_choices" in values else {}
    model = type(template).from_config({**values, **options, **choices})
    model.build()
    model.save_pretrained(tmp_path / "ours")
    checkpoint = open_checkpoint(tmp_path / "ours")
    save_checkpoint(checkpoint, str(tmp_path / "external"), "hugging_face")
    found = type(model).from_pretrained(tmp_path / "external", **choices)

    kind = {"question_answering": "span"}.get(name, name)
    features = heads.random_features(kind, np.random.default_rng(0), training=False)
    if "takes in padding" in "\n".join(differences(checkpoint, "hugging_face")):
        assert task_registry.find(name).hugging_face and not found.pooling.pool_padding
    heads.assert_equal(heads.arrays(found(features)), heads.arrays(model(features)), atol=1e-6)
