"""Measures a served classifier on the CPU: next to its peers; every figure comes from this one run.

    python -m benchmarks.serving --peer_python=PYTHON --output=runs/serving.json
    python -m benchmarks.serving --runtime=tensorflow,openvino --peer_python=PYTHON

  ours           SavedModels as `xlnet-tf export` writes them, with float32 and bfloat16 weights.
  model_garden   Model Garden's XLNetClassifier as a SavedModel.
  hugging_face   XLNetForSequenceClassification in PyTorch, with our weights, in a process of --peer_python, a
                 Python that has torch and transformers; left out without.
  openvino       with --runtime=openvino: ours and Hugging Face's, with float32 and bfloat16, and ours with
                 int8, whose ranges are those of random tokens; --peer_python then has openvino, too.
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
# Answers to a line of features with the logits, to any other line by computing once more.
PEER = """
import json, sys, torch, transformers
folder, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
model = transformers.XLNetForSequenceClassification.from_pretrained(folder).eval()
names = {"input_word_ids": "input_ids", "input_mask": "attention_mask", "input_type_ids": "token_type_ids"}
with torch.inference_mode():
    for line in sys.stdin:
        if line.strip():
            inputs = {names[name]: torch.tensor(rows) for name, rows in json.loads(line).items()}
        logits = model(**inputs).logits
        print("ANSWER", json.dumps(logits.tolist()), flush=True)
"""
# Likewise, with the model converted for OpenVINO.
OPENVINO_PEER = """
import json, sys, torch, transformers, openvino
folder, threads = sys.argv[1:]
class Logits(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = transformers.XLNetForSequenceClassification.from_pretrained(folder).eval()
    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.model(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).logits
names = {"input_word_ids": "input_ids", "input_mask": "attention_mask", "input_type_ids": "token_type_ids"}
with torch.no_grad():
    example = {name: torch.ones(1, 16, dtype=torch.int64) for name in names.values()}
    model = openvino.convert_model(Logits(), example_input=example)
settings = {"INFERENCE_PRECISION_HINT": "@", "INFERENCE_NUM_THREADS": int(threads)}
request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
for line in sys.stdin:
    if line.strip():
        inputs = {names[name]: torch.tensor(rows).numpy() for name, rows in json.loads(line).items()}
    logits = next(iter(request.infer(inputs).values()))
    print("ANSWER", json.dumps(logits.tolist()), flush=True)
"""
RUNTIMES = ("tensorflow", "openvino")

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


def convert_ours(weights_folder: str, weights: str, seq_len: int, folder: pathlib.Path):
    """Converts the classifier for OpenVINO; returns a function from features to probabilities [B, C]."""
    import openvino

    from xlnet_tf.serving.graph.exported_model import MAIN_GRAPH
    from xlnet_tf.serving.openvino import conversion, quantization
    from xlnet_tf.serving.openvino.compiled import CompiledGraph
    from xlnet_tf.serving.sources import open_served

    module = open_served(weights_folder, head="classification", seq_len=seq_len).load()
    model = conversion.convert(*module.graph_functions()[MAIN_GRAPH])
    if weights == "bfloat16":
        quantization.to_bfloat16(model)
    elif weights == "int8":
        model = quantization.quantize(model, [make_features(module.vocab_size, 4, seq_len)] * 2)
    path = str(folder / f"openvino_{weights}.xml")
    openvino.save_model(model, path, compress_to_fp16=False)
    graph = CompiledGraph(path, weights)
    return lambda features: graph(features)["probabilities"]


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
    runtimes: Sequence[str] = RUNTIMES[:1],
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
        programs = {"hugging_face": PEER}
        if "openvino" in runtimes:
            for weights in (*WEIGHTS, "int8"):
                name = f"{OURS} openvino {weights}"
                served[name] = convert_ours(weights_folder, weights, seq_len, folder)
                others.append(name)
            for weights, precision in zip(WEIGHTS, ("f32", "bf16")):
                programs[f"hugging_face openvino {weights}"] = OPENVINO_PEER.replace("@", precision)
        asked = {
            name: stack.enter_context(peers.hugging_face(peer_python, program, weights_folder))
            for name, program in programs.items()
        }
        for rows in batches:
            features = make_features(config.n_token, rows, seq_len)
            answers = {name: served[name](features) for name in (first, *others)}
            candidates = {name: functools.partial(answer, features) for name, answer in served.items()}
            for name, peer in asked.items():
                if peer:
                    answers[name] = softmax(peer.ask(features), axis=-1)
                    candidates[name] = peer.repeat
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
    runtime: Sequence[str] = option("what runs the models: tensorflow,openvino", RUNTIMES[:1])


def main(_: Sequence[str]) -> None:
    options = from_flags(ServingOptions)
    harness.check_known("runtime", options.runtime, RUNTIMES)
    tokenizer = XLNetTokenizer(existing(options.tokenizer, DEMO_TOKENIZER, "tokenizer"))
    figures = measure(
        options.config,
        tokenizer,
        batches=options.batch_size,
        seq_len=options.seq_len,
        repeats=options.repeats,
        peer_python=options.peer_python,
        runtimes=options.runtime,
    )
    harness.publish(figures, options.output)


if __name__ == "__main__":
    define_flags(ServingOptions)
    errors.run(main)
