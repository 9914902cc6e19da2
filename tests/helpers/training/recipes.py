"""Fine-tuning with the recipes that come with the project, and predictions of the runs."""

import tensorflow as tf
from official.core import exp_factory
from official.modeling import hyperparams

from run_scripts.common.experiment import RECIPES
from xlnet_tf.tasks import prediction

STRATEGY = tf.distribute.OneDeviceStrategy("CPU:0")


def settings(experiment: str, recipe: str, data, dev="dev", **overrides):
    """Returns an experiment's settings with a recipe, for the sets `train` and `dev` of a folder."""
    params = exp_factory.get_exp_config(experiment)
    hyperparams.override_params_dict(params, f"{RECIPES}/{recipe}.yaml", is_strict=True)
    params.task.train_data.input_path = str(data / "train")
    params.task.validation_data.input_path = str(data / dev)
    params.override(overrides)
    return params


def predict(model_dir, examples, batch_size: int, checkpoint: str = ""):
    """Returns a run that is opened for a set of examples, and its predictions."""
    opened = prediction.Run.open(str(model_dir), str(examples))
    predictor = prediction.Predictor(opened, STRATEGY, batch_size)
    return opened, predictor.predict(opened.checkpoint(checkpoint))
