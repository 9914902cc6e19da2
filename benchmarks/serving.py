"""Measures a served classifier on the CPU: next to its peers; every figure comes from this one run.

    python -m benchmarks.serving --peer_python=PYTHON --output=runs/serving.json

  ours           SavedModels as `xlnet-tf export` writes them, with float32 and bfloat16 weights.
  model_garden   Model Garden's XLNetClassifier as a SavedModel.
  hugging_face   XLNetForSequenceClassification in PyTorch, with our weights, in a process of --peer_python, a
                 Python that has torch and transformers; left out without.
                 With bfloat16 by autocast; with --others, BERT, ModernBERT and DeBERTa-v3 as well, of the
                 released base size and with random weights.
  products       the matrix products of our forward pass in float32 and nothing else. The last layer computes
                 one token of a text, from which the classes come.

All read the same tokens; SavedModels are loaded with tf.saved_model.load and asked for signature `tokens`.
They run in turn, once per repetition, so that a disturbance hits all alike, with as many threads as there are
cores. The weights are random. That our model and Hugging Face's compute the same is checked by their answers.
"""

import contextlib
import dataclasses
import functools
import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import softmax

from benchmarks import harness, peers
from benchmarks.harness import DEMO_TOKENIZER, existing, interleave
from xlnet_tf import errors
from xlnet_tf.config import XLNetConfig
from xlnet_tf.flags import define_flags, from_flags, option
from xlnet_tf.text import packing, special_tokens
from xlnet_tf.text.tokenizer import XLNetTokenizer

LABELS = ("no", "yes")
OURS = "ours"
WEIGHTS = ("float32", "bfloat16")
HUGGING_FACE = "hugging_face"
# Keeps a line of features; answers to a line with a mode with its logits.
PEER = f"""{peers.TORCH_BEGIN}
names = dict(input_word_ids="input_ids", input_mask="attention_mask", input_type_ids="token_type_ids")
models = dict()
for line in sys.stdin:
    request, logits = json.loads(line), torch.zeros([])
    if "mode" not in request:
        inputs = dict((names[name], torch.tensor(rows)) for name, rows in request.items())
    else:
        name = request["mode"].removesuffix(" bfloat16")
        own = name == "{HUGGING_FACE}"
        if name not in models:
            make = classifiers.from_pretrained if own else classifiers.from_config
            models[name] = make(folder if own else other_config(name)).eval()
        bfloat16 = torch.autocast("cpu", torch.bfloat16, enabled=name != request["mode"])
        with torch.inference_mode(), bfloat16:
            known = [key for key in inputs if own or key != "token_type_ids"]
            logits = models[name](**dict((key, inputs[key]) for key in known)).logits.float()
    print("ANSWER", json.dumps(logits.tolist()), flush=True)
"""

Features = Mapping[str, np.ndarray]


def make_features(vocab_size: int, rows: int, seq_len: int) -> dict[str, np.ndarray]:
    """Makes up texts of full length, [A SEP CLS], of random tokens: int32 [rows, seq_len] each."""
    rng = np.random.default_rng(0)
    ids = rng.integers(special_tokens.EOP_ID + 1, vocab_size, [rows, seq_len], dtype=np.int32)
    ids[:, -2:] = special_tokens.SEP_ID, special_tokens.CLS_ID
    types = np.zeros_like(ids)
    types[:, -1] = packing.CLS_SEGMENT
    return {"input_word_ids": ids, "input_mask": np.ones_like(ids), "input_type_ids": types}


def save_weights(config: XLNetConfig, tokenizer: XLNetTokenizer, folder: pathlib.Path) -> str:
    """Writes a classifier of random weights and its tokenizer in Hugging Face's format; returns its path."""
    from xlnet_tf.models.classifier import XLNetClassifier
    from xlnet_tf.models.encoder import XLNetEncoder

    model = XLNetClassifier(XLNetEncoder(config), len(LABELS), labels=LABELS)
    model.build()
    path = str(folder / "hugging_face")
    peers.save_for_hugging_face(model, path, tokenizer)
    return path


def export_ours(weights_folder: str, weights: str, seq_len: int, folder: pathlib.Path) -> str:
    """Exports the classifier as run_scripts.export does; returns the SavedModel's folder."""
    from xlnet_tf.serving.export import export
    from xlnet_tf.serving.sources import open_served

    module = open_served(weights_folder, head="classification", seq_len=seq_len).load(weights)
    return export(module, str(folder / f"{OURS}_{weights}"), warmup_batches=[1])


def export_model_garden(config: XLNetConfig, folder: pathlib.Path) -> str:
    """Writes Model Garden's classifier of the same size as a SavedModel; returns its folder."""
    import tensorflow as tf
    from official.nlp.modeling.models import xlnet

    network = peers.model_garden_network(config, dropout=0.1, two_stream=False)
    model = xlnet.XLNetClassifier(network, len(LABELS))

    def answer(input_word_ids, input_mask, input_type_ids):
        features = {
            "input_word_ids": input_word_ids,
            "input_mask": tf.cast(input_mask, tf.float32),
            "input_type_ids": input_type_ids,
        }
        return {"probabilities": tf.nn.softmax(model(features, training=False))}

    features = make_features(config.n_token, 1, 8)
    answer(**features)  # creates the variables
    module = tf.Module()
    module.variables_of_model = model.variables
    specs = {name: tf.TensorSpec([None, None], tf.int32, name) for name in features}
    signature = tf.function(answer).get_concrete_function(**specs)
    path = str(folder / "model_garden")
    tf.saved_model.save(module, path, signatures={"tokens": signature})
    return path


def load(path: str) -> Callable[[Features], np.ndarray]:
    """Loads a SavedModel; returns a function for its signature `tokens`, to probabilities [B, C]."""
    import tensorflow as tf

    loaded = tf.saved_model.load(path)

    def answer(features: Features) -> np.ndarray:
        tensors = {name: tf.constant(values) for name, values in features.items()}
        return loaded.signatures["tokens"](**tensors)["probabilities"].numpy()

    return answer


def matrix_products(config: XLNetConfig, rows: int, seq_len: int) -> Callable[[], None]:
    """Returns a function that runs the float32 matrix products of a forward pass, except for the distances.

    The last layer has one query in each row, CLS, from which the answer comes.
    """
    import tensorflow as tf

    width, inner, head = config.d_model, config.d_inner, [config.n_head, config.d_head]
    heads = config.n_head * config.d_head
    sizes = {"q": [width, heads], "k": [width, heads], "v": [width, heads], "o": [heads, width]}
    sizes |= {"inner": [width, inner], "outer": [inner, width]}
    layers = [
        {name: tf.Variable(tf.random.normal(size, stddev=0.02)) for name, size in sizes.items()}
        for _ in range(config.n_layer)
    ]
    distances = tf.random.normal([config.n_head, 2 * seq_len, config.d_head])

    @tf.function
    def products(x, distances):
        results = []
        for number, weights in enumerate(layers):
            num_queries = 1 if number == len(layers) - 1 else seq_len
            queries, keys, values = (
                tf.reshape(tf.matmul(x[: rows * length], weights[name]), [rows, head[0], length, head[1]])
                for name, length in (("q", num_queries), ("k", seq_len), ("v", seq_len))
            )
            by_distance = tf.matmul(queries, distances, transpose_b=True)
            attended = tf.matmul(tf.matmul(queries, keys, transpose_b=True), values)
            output = tf.matmul(tf.reshape(attended, [-1, heads]), weights["o"])
            output = tf.matmul(tf.matmul(output, weights["inner"]), weights["outer"])
            results.append(output[0, 0] + by_distance[0, 0, 0, 0])
        return tf.stack(results)

    x = tf.random.normal([rows * seq_len, width])
    return lambda: products(x, distances).numpy()


def measure(
    config: XLNetConfig,
    tokenizer: XLNetTokenizer,
    *,
    batches: Sequence[int] = (1, 8),
    seq_len: int = 128,
    repeats: int = 15,
    peer_python: str | None = None,
    others: bool = False,
) -> dict[str, Any]:
    """Exports the models, with the tokenizer's vocabulary, and measures them.

    Returns a table: for each size and model the median and fastest time, examples per second, the ratio to
    our float32 time, and the largest difference of a probability from it.
    """
    config = XLNetConfig.from_dict(config.to_dict() | {"n_token": tokenizer.vocab_size})
    table = []
    first, *others = (f"{OURS} {weights}" for weights in WEIGHTS)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        weights_folder = save_weights(config, tokenizer, folder)
        served = {
            f"{OURS} {weights}": load(export_ours(weights_folder, weights, seq_len, folder))
            for weights in WEIGHTS
        }
        served["model_garden"] = load(export_model_garden(config, folder))
        peer = stack.enter_context(peers.hugging_face(peer_python, PEER, weights_folder))
        for rows in batches:
            features = make_features(config.n_token, rows, seq_len)
            answers = {name: served[name](features) for name in (first, *others)}
            candidates = {name: functools.partial(answer, features) for name, answer in served.items()}
            if peer:
                peer.ask(features)
                names = [HUGGING_FACE, *(peers.OTHERS if others else ())]
                for mode in (f"{name}{dtype}" for name in names for dtype in ("", " bfloat16")):
                    candidates[mode] = functools.partial(peer.ask, {"mode": mode})
                    if mode.startswith(HUGGING_FACE):
                        answers[mode] = softmax(candidates[mode](), axis=-1)
            candidates["products"] = matrix_products(config, rows, seq_len)
            timings = interleave(candidates, repeats, f"{rows} x {seq_len}")
            for name, timing in timings.items():
                row = {"": f"{rows} x {seq_len}, {name}"}
                row |= {"median ms": 1e3 * timing.wall, "fastest ms": 1e3 * timing.fastest}
                row["examples/s"] = rows / timing.wall
                row["time / ours"] = timing.wall / timings[first].wall
                if name in answers and name != first:
                    row["largest difference"] = float(np.abs(answers[name] - answers[first]).max())
                table.append(row)
    return {f"Classifier of {config.n_layer} layers of {config.d_model}": table}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingOptions(harness.BenchmarkOptions):
    """What is asked of the models."""

    repeats: int = option("repetitions; figures are their medians", 15, least=1)
    tokenizer: str | None = option(f"a SentencePiece model. Default: the demo's, {DEMO_TOKENIZER}", None)
    batch_size: Sequence[int] = option("rows of a request", (1, 8), least=1)
    seq_len: int = option("tokens of a text", 128, least=5)
    others: bool = option("measure BERT, ModernBERT and DeBERTa-v3, too", False)


def main(_: Sequence[str]) -> None:
    options = from_flags(ServingOptions)
    tokenizer = XLNetTokenizer(existing(options.tokenizer, DEMO_TOKENIZER, "tokenizer"))
    figures = measure(
        options.config,
        tokenizer,
        batches=options.batch_size,
        seq_len=options.seq_len,
        repeats=options.repeats,
        peer_python=options.peer_python,
        others=options.others,
    )
    harness.publish(figures, options.output)


if __name__ == "__main__":
    define_flags(ServingOptions)
    errors.run(main)
