"""The peers that the benchmarks compare with: Model Garden's models, and a process of Hugging Face's."""

import contextlib
import functools
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.harness import machine
from xlnet_tf.cli import signals
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.text.tokenizer import XLNetTokenizer

# TensorFlow is imported where it is needed, after its environment is set.

# What people would take instead of XLNet, and the start of programs that compute with PyTorch: `other_config`
# has a model's released base size, with as large a share of its layers as our XLNet in `folder` has of 12.
OTHERS = ("bert", "modernbert", "deberta-v3")
TORCH_BEGIN = """
import json, random, sys, torch, transformers
folder, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
torch.manual_seed(0)
classifiers = transformers.AutoModelForSequenceClassification

def other_config(name, **options):
    if name == "bert":
        config = transformers.BertConfig(vocab_size=32000, **options)
    elif name == "modernbert":
        config = transformers.ModernBertConfig(**options)
    else:
        config = transformers.DebertaV2Config(
            vocab_size=128100, hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
            intermediate_size=3072, type_vocab_size=0, layer_norm_eps=1e-7, relative_attention=True,
            max_relative_positions=-1, position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True,
            pos_att_type=["p2c", "c2p"], position_biased_input=False, **options)
    share = transformers.XLNetConfig.from_pretrained(folder).n_layer / 12
    config.num_hidden_layers = max(1, round(share * config.num_hidden_layers))
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:config.num_hidden_layers]
    return config
"""


def model_garden_network(config: XLNetConfig, dropout: float, *, two_stream: bool, bi_data: bool = False):
    """Creates Model Garden's body of the same size."""
    import tf_keras
    from official.nlp.modeling.networks import xlnet_base

    return xlnet_base.XLNetBase(
        vocab_size=config.n_token,
        num_layers=config.n_layer,
        hidden_size=config.d_model,
        num_attention_heads=config.n_head,
        head_size=config.d_head,
        inner_size=config.d_inner,
        dropout_rate=dropout,
        attention_dropout_rate=dropout,
        attention_type="bi",
        bi_data=bi_data,
        initializer=tf_keras.initializers.TruncatedNormal(stddev=0.02),
        two_stream=two_stream,
        tie_attention_biases=not config.untie_r,
        inner_activation=config.ff_activation,
    )


def model_garden_pretrainer(
    config: XLNetConfig, batch: Mapping[str, np.ndarray], dropout: float, bi_data: bool
):
    """Makes Model Garden's XLNetPretrainer of the same size, its variables created."""
    from official.nlp.modeling.models import xlnet

    model = xlnet.XLNetPretrainer(model_garden_network(config, dropout, two_stream=True, bi_data=bi_data))
    model(batch)
    return model


def model_garden_losses(model, features, training: bool = True):
    """Returns the loss of each target [B, P] of Model Garden's XLNetPretrainer."""
    import tensorflow as tf

    logits, _ = model(features, training=training)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(features["target_ids"], logits)


def keras_adamw():
    """Creates Keras' AdamW with the defaults of our optimizer."""
    import tf_keras

    from xlnet_tf.training.optimizer import OptimizerConfig

    settings = OptimizerConfig()
    return tf_keras.optimizers.AdamW(
        settings.learning_rate,
        settings.weight_decay,
        epsilon=settings.epsilon,
        global_clipnorm=settings.clip_norm,
    )


def torch_adamw() -> dict[str, Any]:
    """Returns the defaults of our optimizer as arguments of the PyTorch programs."""
    from xlnet_tf.training.optimizer import OptimizerConfig

    settings = OptimizerConfig()
    adam = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay, "eps": settings.epsilon}
    return {"adam": adam, "clip_norm": settings.clip_norm}


class HuggingFace:
    """A process that computes with PyTorch.

    Args:
        program: answers each line of json, a request, with a line "ANSWER" and the result as json; an empty
            line repeats the last request. Its arguments are the folder and the number of threads.
    """

    def __init__(self, python: str, program: str, weights_folder: str, threads: int):
        start = functools.partial(
            subprocess.Popen,
            [python, "-c", program, weights_folder, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            text=True,
        )
        self._process = signals.blocked(start)

    def ask(self, request: Mapping[str, Any]) -> np.ndarray:
        """Sends a request of arrays and plain values; returns its result."""
        lists = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in request.items()
        }
        return self._ask(json.dumps(lists))

    def repeat(self) -> np.ndarray:
        """Repeats the last request; returns its result."""
        return self._ask("")

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # of what is still to be written
            self._process.stdin.close()
        self._process.wait()

    def _ask(self, line: str) -> np.ndarray:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        for answer in self._process.stdout:
            if answer.startswith("ANSWER "):
                return np.array(json.loads(answer.removeprefix("ANSWER ")))
        raise UserError(
            f"{self._process.args[0]} ended without an answer: give --peer_python a Python that has torch, "
            "transformers and safetensors; what it wrote is above"
        )


def hugging_face(python: str | None, program: str, weights_folder: str):
    """Starts Hugging Face's process, if there is a Python for it; it ends with the context."""
    if not python:
        return contextlib.nullcontext()
    return contextlib.closing(HuggingFace(python, program, weights_folder, machine()["cores"]))


@contextlib.contextmanager
def hugging_face_like(
    python: str | None, program: str, make_model: Callable[[], Any]
) -> Iterator[HuggingFace | None]:
    """Starts Hugging Face's process with the weights of a model of ours; None without a Python."""
    with tempfile.TemporaryDirectory() as folder:
        if python:
            save_for_hugging_face(make_model(), folder)
        with hugging_face(python, program, folder) as peer:
            yield peer


def save_for_hugging_face(model, folder: str, tokenizer: XLNetTokenizer | None = None) -> None:
    """Writes a model's weights, with its tokenizer if it is given, in Hugging Face's format."""
    from xlnet_tf import checkpoints

    with tempfile.TemporaryDirectory() as native:
        checkpoints.save_model(model, native, tokenizer)
        checkpoints.save_checkpoint(checkpoints.open_checkpoint(native), folder, "hugging_face")
