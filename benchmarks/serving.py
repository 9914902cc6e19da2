"""Measures a served classifier on the CPU: next to its peers; every figure comes from this one run.

    python -m benchmarks.serving --peer_python=PYTHON --output=runs/serving.json
    python -m benchmarks.serving --runtime=tensorflow,openvino --peer_python=PYTHON --others

  ours           SavedModels as `xlnet-tf export` writes them, with float32 and bfloat16 weights.
  model_garden   Model Garden's XLNetClassifier as a SavedModel.
  hugging_face   XLNetForSequenceClassification in PyTorch, with our weights, in a process of --peer_python, a
                 Python that has torch and transformers; left out without.
                 With bfloat16 by autocast; with --others, BERT, ModernBERT and DeBERTa-v3 as well, of the
                 released base size and with random weights.
  openvino       with --runtime=tensorflow,openvino: our exports for OpenVINO, and the peers as it converts
                 them, also with int8 weights, whose ranges are those of the measured tokens; --peer_python
                 then has openvino and nncf, too.
  onnxruntime    with this word in --runtime: hugging_face as torch.onnx exports it for the measured shape;
                 --peer_python then has onnx and onnxruntime, too.
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
FLOAT32, BFLOAT16, INT8 = "float32", "bfloat16", "int8"
HUGGING_FACE = "hugging_face"
TENSORFLOW, OPENVINO, ONNX = RUNTIMES = ("tensorflow", "openvino", "onnxruntime")
PEER_TYPES = {"": ("", BFLOAT16), OPENVINO: ("", BFLOAT16, INT8), ONNX: ("",)}  # "": PyTorch; float32
# Keeps a line of features; answers to a line with a mode, a model's name, runtime and type, with its logits.
PEER = (
    peers.TORCH_BEGIN
    + """
import ctypes, gc
names = dict(input_word_ids="input_ids", input_mask="attention_mask", input_type_ids="token_type_ids")
models, graphs = {}, {}

class Logits(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        own = name == "hugging_face"
        make = classifiers.from_pretrained if own else classifiers.from_config
        self.model = make(folder if own else other_config(name)).eval()
        self.names = [key for key in names.values() if own or key != "token_type_ids"]

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs))).logits

def convert(model, mode, values):
    if " onnxruntime" in mode:
        import io, onnxruntime
        file = io.BytesIO()
        with torch.no_grad():
            torch.onnx.export(model, tuple(values), file, input_names=model.names, dynamo=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(threads)
        session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
        return lambda arrays: session.run(None, dict(zip(model.names, arrays)))[0]
    import openvino
    example = tuple(torch.ones(1, 16, dtype=torch.int64) for _ in model.names)
    with torch.no_grad():
        graph = openvino.convert_model(model, example_input=example)
    if mode.endswith(" int8"):
        import nncf
        rows = nncf.Dataset([[value.numpy()[:4] for value in values]] * 2)
        graph = nncf.quantize(graph, rows, model_type=nncf.ModelType.TRANSFORMER, subset_size=2)
    settings = {"INFERENCE_PRECISION_HINT": "f32" if mode.endswith(" openvino") else "bf16"}
    settings["INFERENCE_NUM_THREADS"] = int(threads)
    request = openvino.Core().compile_model(graph, "CPU", settings).create_infer_request()
    del graph
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # a conversion leaves gigabytes that are free, but still the process's
    return lambda arrays: next(iter(request.infer(arrays).values()))

for line in sys.stdin:
    request, logits = json.loads(line), torch.zeros([])
    if "mode" not in request:
        inputs = {names[name]: torch.tensor(rows) for name, rows in request.items()}
    else:
        mode = request["mode"]
        name, bfloat16 = mode.partition(" ")[0], mode.endswith(" bfloat16")
        if name not in models:
            models[name] = Logits(name)
        values = [inputs[key] for key in models[name].names]
        if " openvino" in mode or " onnxruntime" in mode:
            key = values[0].shape if " onnxruntime" in mode else None
            if mode not in graphs or graphs[mode][0] != key:
                graphs[mode] = key, convert(models[name], mode, values)
            logits = graphs[mode][1]([value.numpy() for value in values])
        else:
            with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
                logits = models[name](*values).float()
    print("ANSWER", json.dumps(logits.tolist()), flush=True)
"""
)

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


def convert_ours(weights_folder: str, weights: str, seq_len: int) -> Callable[[Features], np.ndarray]:
    """Converts the classifier for OpenVINO as run_scripts.export does.

    Returns a function from features to probabilities [B, C].
    """
    from xlnet_tf.serving.sources import open_served

    module = open_served(weights_folder, head="classification", seq_len=seq_len).load()
    graph = compile_graph(module, weights, [make_features(module.vocab_size, 4, seq_len)] * 2)
    return lambda features: graph(features)["probabilities"]


def compile_graph(module, weights: str, batches: Sequence[Features]):
    """Compiles an ExportableModel's graph for OpenVINO; int8 has the ranges of activations on the batches."""
    import openvino

    from xlnet_tf.serving.graph.exported_model import MAIN_GRAPH
    from xlnet_tf.serving.openvino import conversion, quantization
    from xlnet_tf.serving.openvino.compiled import CompiledGraph

    model = conversion.convert(*module.graph_functions()[MAIN_GRAPH])
    if weights == INT8:
        model = quantization.quantize(model, [*batches])
    elif weights == BFLOAT16:
        quantization.to_bfloat16(model)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/{MAIN_GRAPH}.xml"
        openvino.save_model(model, path, compress_to_fp16=False)
        return CompiledGraph(path, weights)


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
    runtimes: Sequence[str] = (TENSORFLOW,),
) -> dict[str, Any]:
    """Exports the models, with the tokenizer's vocabulary, and measures them.

    Returns a table: for each size and model the median and fastest time, examples per second, the ratio to
    our float32 time, and the largest difference of a probability from it.
    """
    config = XLNetConfig.from_dict(config.to_dict() | {"n_token": tokenizer.vocab_size})
    table = []
    first = f"{OURS} {FLOAT32}"
    peer_modes = [
        " ".join(filter(None, (name, runtime, weights)))
        for runtime in ("", *(name for name in runtimes if name in PEER_TYPES))
        for name in (HUGGING_FACE, *(peers.OTHERS if others and runtime != ONNX else ()))
        for weights in PEER_TYPES[runtime]
    ]
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        weights_folder = save_weights(config, tokenizer, folder)
        ours = {
            f"{OURS} {weights}": load(export_ours(weights_folder, weights, seq_len, folder))
            for weights in (FLOAT32, BFLOAT16)
        }
        if OPENVINO in runtimes:
            for weights in (FLOAT32, BFLOAT16, INT8):
                ours[f"{OURS} {OPENVINO} {weights}"] = convert_ours(weights_folder, weights, seq_len)
        served = {**ours, "model_garden": load(export_model_garden(config, folder))}
        peer = stack.enter_context(peers.hugging_face(peer_python, PEER, weights_folder))
        for rows in batches:
            features = make_features(config.n_token, rows, seq_len)
            answers = {name: answer(features) for name, answer in ours.items()}
            candidates = {name: functools.partial(answer, features) for name, answer in served.items()}
            if peer:
                peer.ask(features)
                for mode in peer_modes:
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
    runtime: Sequence[str] = option(f"what runs the models: {','.join(RUNTIMES)}", (TENSORFLOW,))


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
        others=options.others,
        runtimes=options.runtime,
    )
    harness.publish(figures, options.output)


if __name__ == "__main__":
    define_flags(ServingOptions)
    errors.run(main)
