"""Training steps of very small models, as programs."""

import tempfile

import tf_keras
from official.core import exp_factory, task_factory

from xlnet_tf import task_registry
from xlnet_tf.config import XLNetConfig
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.tasks.pretraining import task as pretraining
from xlnet_tf.tpu import steps, synthetic
from xlnet_tf.tpu.lowering import Program

T, ROWS, MEMORY = 24, 2, 16
VOCABULARY = 60
TASKS = ("pretraining", *task_registry.tasks())


def settings(task: str, folder, *, rows: int = ROWS, **changes):
    """Returns a task's settings on a synthetic set in a folder, in batches of `rows`.

    `changes` are fields of task.model.
    """
    name = pretraining.EXPERIMENT if task == "pretraining" else task_registry.find(task).experiment
    params = exp_factory.get_exp_config(name)
    model = {"n_layer": 1, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 24, **changes}
    sizes = {"seq_len": T, "vocab_size": VOCABULARY}
    if task == "pretraining":
        model = {"memory_len": MEMORY, **model}
        synthetic.pretraining_records(str(folder), rows=rows, num_predict=None, **sizes)
    else:
        synthetic.examples(str(folder), task, num_labels=3, sequences=4, **sizes)
    data = {"input_path": str(folder), "global_batch_size": rows}
    params.override({"task": {"model": model, "train_data": data}})
    return params


def model_of(task: str, config: XLNetConfig, **options) -> tf_keras.Model:
    """Returns a task's model, built as its training builds it."""
    with tempfile.TemporaryDirectory() as folder:
        params = settings(task, folder).task
        head = task_factory.get_task_cls(type(params))(params).build_head(XLNetEncoder(config, **options))
    head.build()
    return head


def step(task: str, folder, dtype: str = "float32", **changes) -> Program:
    """Lowers a task's whole training step."""
    params = settings(task, folder, **changes)
    params.runtime.mixed_precision_dtype = dtype
    return steps.training_step(params)
