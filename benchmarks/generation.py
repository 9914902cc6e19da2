"""Measures generation on the CPU: next to Hugging Face's; every figure comes from this one run.

    python -m benchmarks.generation --peer_python=PYTHON --output=runs/generation.json

  ours           prompts continued by the likeliest piece, with cached content states, as a TensorFlow graph.
  ours bfloat16  the same model with activations in bfloat16, where the processor computes with it.
  ours xla       ours compiled by XLA, if --xla asks for it.
  openvino       with --runtime=tensorflow,openvino: what `xlnet-tf export --runtime=openvino` writes, with
                 float32 weights, and with integers of 8 and of 4 bits.
  hugging_face   XLNetLMHeadModel.generate in PyTorch, with our weights, in a process of --peer_python, a
                 Python that has torch and transformers; left out without. It keeps hidden states, too, but
                 projects all of them to keys and values again for each token.

They run in turn, once per repetition, so that a disturbance hits all alike, with as many threads as there are
cores. A run reads the prompts and writes all tokens. The weights are random. That both compute the same is
checked by the first tokens; later ones may differ: Hugging Face lets the last two tokens see each other, and
random weights make many pieces nearly as likely as the likeliest, among which bfloat16 chooses otherwise.
"""

import dataclasses
import functools
import itertools
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import harness, peers
from benchmarks.harness import interleave, our_model
from xlnet_tf import errors
from xlnet_tf.config import XLNetConfig
from xlnet_tf.flags import define_flags, from_flags, option
from xlnet_tf.text import special_tokens

OURS, BFLOAT16, XLA, PEER = "ours", "ours bfloat16", "ours xla", "hugging_face"
TENSORFLOW, OPENVINO = RUNTIMES = ("tensorflow", "openvino")

# Answers to a line of prompts with what it writes after them, to any other line by writing once more.
PEER_PROGRAM = """
import json, sys, torch, transformers
folder, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
model = transformers.XLNetLMHeadModel.from_pretrained(folder).eval()
with torch.inference_mode():
    for line in sys.stdin:
        if line.strip():
            request = json.loads(line)
            ids, new_tokens = torch.tensor(request["ids"]), request["new_tokens"]
        texts = model.generate(
            ids, do_sample=False, max_new_tokens=new_tokens, min_new_tokens=new_tokens, pad_token_id=5,
            attention_mask=torch.ones_like(ids),
        )
        print("ANSWER", json.dumps(texts[:, ids.shape[1] :].tolist()), flush=True)
"""


def make_prompts(vocab_size: int, rows: int, prompt_len: int) -> np.ndarray:
    """Makes up prompts of random pieces: int32 [rows, prompt_len]."""
    rng = np.random.default_rng(0)
    return rng.integers(special_tokens.EOP_ID + 1, vocab_size, [rows, prompt_len], dtype=np.int32)


def our_writer(model, xla: bool = False) -> Callable[[np.ndarray, int], np.ndarray]:
    """Returns a function that writes new tokens [B, G] after prompts [B, T], always the likeliest."""
    import tensorflow as tf

    from xlnet_tf.generation import decoding_loop
    from xlnet_tf.generation.layout import continuation
    from xlnet_tf.generation.settings import same_for_all

    @tf.function(jit_compile=xla, autograph=False, reduce_retracing=not xla)
    def continue_all(ids, lengths, settings, new_tokens):
        layout = continuation(ids, lengths, tf.fill(tf.shape(lengths), new_tokens), new_tokens)
        return decoding_loop.sample(model, layout, settings, xla=xla).tokens[:, 0]

    def write(ids, new_tokens):
        rows, width = ids.shape
        settings = same_for_all(rows, temperature=0.0, top_k=0, top_p=1.0, seed=0)
        inputs = (ids, np.full(rows, width, np.int32), settings)
        return continue_all(*tf.nest.map_structure(tf.constant, inputs), new_tokens).numpy()

    return write


def openvino_writer(model, weights: str) -> Callable[[np.ndarray, int], np.ndarray]:
    """Returns what `our_writer` does, computed by the graphs that are exported with these weights."""
    from xlnet_tf.generation.arrays.openvino import OpenVinoEngine
    from xlnet_tf.generation.functions import functions_of
    from xlnet_tf.generation.settings import WritingRules, same_for_all
    from xlnet_tf.serving.openvino import conversion, quantization
    from xlnet_tf.serving.openvino.compiled import FLOAT32, GraphParts, import_openvino

    graphs = {name: conversion.convert(*function) for name, function in functions_of(model)}
    if weights != FLOAT32:
        graphs = {name: quantization.compress_weights(graph, weights) for name, graph in graphs.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/language_model.xml"
        import_openvino().save_model(conversion.merge(graphs), path, compress_to_fp16=False)
        parts = GraphParts(path, weights, of_few_rows=["step"])
    config = model.encoder.config
    sizes = {"n_layer": config.n_layer, "d_model": config.d_model, "vocab_size": config.n_token}
    engine = OpenVinoEngine(parts.compile, **sizes)

    def write(ids, new_tokens):
        rows, width = ids.shape
        settings = same_for_all(rows, temperature=0.0, top_k=0, top_p=1.0, seed=0)
        lengths, nothing = np.full(rows, width, np.int32), np.zeros(0, np.int32)
        rules = WritingRules(nothing, np.float32(1))
        return engine.sample(ids, lengths, new_tokens, settings, nothing, rules).tokens[:, 0]

    return write


def measure(
    config: XLNetConfig,
    *,
    batches: Sequence[int] = (1, 8),
    prompt_lens: Sequence[int] = (128,),
    new_tokens: int = 64,
    repeats: int = 5,
    bfloat16: bool = False,
    xla: bool = False,
    runtimes: Sequence[str] = (TENSORFLOW,),
    peer_python: str | None = None,
) -> dict[str, Any]:
    """Measures generation of new tokens after B prompts of T pieces each.

    Returns a table: for each length and number of prompts seconds, also of all threads together, tokens per
    second, the speed to that of ours in TensorFlow and, with Hugging Face, to its, and which part of the
    first tokens and of all equals its.
    """
    table = []
    model = our_model(config)
    writers = {OURS: our_writer(model)}
    if bfloat16:
        writers[BFLOAT16] = our_writer(our_model(config, bfloat16=True))
    if xla:
        writers[XLA] = our_writer(model, xla=True)
    if OPENVINO in runtimes:
        for weights in ("float32", "int8", "int4"):
            writers[f"{OPENVINO} {weights}"] = openvino_writer(model, weights)
    with peers.hugging_face_like(peer_python, PEER_PROGRAM, lambda: model) as peer:
        for prompt_len, rows in itertools.product(prompt_lens, batches):
            prompts = make_prompts(config.n_token, rows, prompt_len)
            runs = {name: functools.partial(writer, prompts, new_tokens) for name, writer in writers.items()}
            same = {}
            if peer:
                expected = peer.ask({"ids": prompts, "new_tokens": new_tokens})
                same = {name: run() == expected for name, run in runs.items()}
                runs[PEER] = peer.repeat
            timings = interleave(runs, repeats, f"{rows} x {prompt_len}")
            for name, timing in timings.items():
                row = {"": f"{rows} x {prompt_len}, {name}", "s": timing.wall, "CPU s": timing.cpu}
                row["tokens/s"] = rows * new_tokens / timing.wall
                row["times as fast"] = timings[OURS].wall / timing.wall
                if name in same:
                    row[f"times as fast as {PEER}"] = timings[PEER].wall / timing.wall
                    row["same first token"] = float(same[name][:, 0].mean())
                    row["same tokens"] = float(same[name].mean())
                table.append(row)
    title = (
        f"{config.n_layer} layers of {config.d_model}, {config.n_token} pieces, {new_tokens} new tokens "
        "after each prompt, prompts read included"
    )
    return {title: table}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerationOptions(harness.BenchmarkOptions):
    """Which prompts are continued, and how."""

    batch_size: Sequence[int] = option("prompts continued together; may be repeated", (1, 8), least=1)
    prompt_len: Sequence[int] = option("pieces of a prompt", (128,), least=1)
    new_tokens: int = option("pieces to write after each", 64, least=1)
    xla: bool = option("whether to measure a graph compiled by XLA, too", False)
    runtime: Sequence[str] = option("what runs the models: tensorflow,openvino", (TENSORFLOW,))


def main(_: Sequence[str]) -> None:
    options = from_flags(GenerationOptions)
    harness.check_known("runtime", options.runtime, RUNTIMES)
    figures = measure(
        options.config,
        batches=options.batch_size,
        prompt_lens=options.prompt_len,
        new_tokens=options.new_tokens,
        repeats=options.repeats,
        bfloat16=bool(harness.machine()["bfloat16"]),
        xla=options.xla,
        runtimes=options.runtime,
        peer_python=options.peer_python,
    )
    harness.publish(figures, options.output)


if __name__ == "__main__":
    define_flags(GenerationOptions)
    errors.run(main)
