"""Measures generation on the CPU next to Hugging Face's; every figure comes from this one run."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from run_scripts.benchmark import peers
from run_scripts.benchmark.timing import Timing, heading, interleave, our_model
from xlnet_tf.config import XLNetConfig
from xlnet_tf.text import special_tokens

OURS, BFLOAT16, XLA, PEER = "ours", "ours bfloat16", "ours xla", "hugging_face"

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
    """Returns what writes new tokens [B, G] after prompts [B, T], always the likeliest."""
    import tensorflow as tf

    from xlnet_tf.generation import decoding_loop, sampling
    from xlnet_tf.generation.layout import continuation

    @tf.function(jit_compile=xla, autograph=False, reduce_retracing=not xla)
    def continue_all(ids, lengths, settings, new_tokens):
        layout = continuation(ids, lengths, tf.fill(tf.shape(lengths), new_tokens), new_tokens)
        return decoding_loop.sample(model, layout, settings, xla=xla).tokens[:, 0]

    def write(ids, new_tokens):
        rows, width = ids.shape
        settings = sampling.same_for_all(rows, temperature=0.0, top_k=0, top_p=1.0, seed=0)
        inputs = (ids, np.full(rows, width, np.int32), settings)
        return continue_all(*tf.nest.map_structure(tf.constant, inputs), new_tokens).numpy()

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
    peer_python: str | None = None,
) -> dict[str, Any]:
    """Measures generation.

    Args:
        batches: numbers of prompts that are continued together, B.
        prompt_lens: their lengths, T.
        new_tokens: to write after each, G.

    Returns:
        config, new_tokens; cases: for each length and number of prompts prompt_len, rows, seconds and
        tokens_per_second by name, and, with Hugging Face, of each of ours by name speed_up: its time over
        ours, and same_first, same: the shares of first tokens, and of all, that are equal to its.
    """
    report = {"config": config.to_dict(), "new_tokens": new_tokens, "cases": []}
    model = our_model(config)
    writers = {OURS: our_writer(model)}
    if bfloat16:
        writers[BFLOAT16] = our_writer(our_model(config, bfloat16=True))
    if xla:
        writers[XLA] = our_writer(model, xla=True)
    with peers.hugging_face_like(peer_python, PEER_PROGRAM, lambda: model) as peer:
        for prompt_len in prompt_lens:
            for rows in batches:
                prompts = make_prompts(config.n_token, rows, prompt_len)
                runs = {
                    name: functools.partial(writer, prompts, new_tokens) for name, writer in writers.items()
                }
                case = {"prompt_len": prompt_len, "rows": rows}
                if peer:
                    expected = peer.ask({"ids": prompts, "new_tokens": new_tokens})
                    same = {name: run() == expected for name, run in runs.items()}
                    case["same_first"] = {name: float(equal[:, 0].mean()) for name, equal in same.items()}
                    case["same"] = {name: float(equal.mean()) for name, equal in same.items()}
                    runs[PEER] = peer.repeat
                timings = interleave(runs, repeats, f"{rows} x {prompt_len}")
                report["cases"].append(case | figures(timings, rows * new_tokens))
    return report


def figures(timings: Mapping[str, Timing], tokens: int) -> dict[str, Any]:
    """Returns what `measure` reports of timings of this many new tokens."""
    seconds = {name: timing.wall for name, timing in timings.items()}
    result = {
        "seconds": seconds,
        "tokens_per_second": {name: tokens / value for name, value in seconds.items()},
    }
    if PEER in seconds:
        result["speed_up"] = {name: seconds[PEER] / value for name, value in seconds.items() if name != PEER}
    return result


def table(report: Mapping[str, Any]) -> str:
    """Returns a report for a person."""
    config = report["config"]
    lines = [
        heading(report["machine"]),
        f"{config['n_layer']} layers of {config['d_model']}, {config['n_token']} pieces, "
        f"{report['new_tokens']} new tokens after each prompt, prompts read included",
        "",
        f"{'prompt':>6} {'rows':>5}  {'':<14}{'seconds':>9}{'tokens/s':>10}",
    ]
    for case in report["cases"]:
        for name, seconds in case["seconds"].items():
            line = (
                f"{case['prompt_len']:>6} {case['rows']:>5}  {name:<14}{seconds:>9.3f}"
                f"{case['tokens_per_second'][name]:>10.1f}"
            )
            if name in case.get("speed_up", {}):
                line += (
                    f"  {case['speed_up'][name]:.1f} times as fast as {PEER}; {case['same_first'][name]:.0%} "
                    f"of the first tokens are the same, {case['same'][name]:.0%} of all"
                )
            lines.append(line)
    return "\n".join(lines)
