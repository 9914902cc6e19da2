r"""Measures a pretraining step on this machine, next to Model Garden's and Hugging Face's.

    python -m benchmarks.step --peer_python=PYTHON --output=runs/step.json

  gemm        the rate of matrix products: the ceiling of what a training step can reach.
  step        forward, backward and AdamW, without memory, on the same inputs, each with what part of the gemm
              rate it reaches:
                ours           as a TensorFlow graph and compiled by XLA; in bfloat16 where the processor
                               computes with it; with gradient checkpointing (recompute), of all or cheap.
                model_garden   Model Garden's XLNetPretrainer, as a graph and by XLA.
                hugging_face   XLNetLMHeadModel in PyTorch, with our weights, in a process of --peer_python, a
                               Python that has torch and transformers; left out without.
              Ratios are of the best modes, next to the project's goals. Temporaries are what XLA plans for
              intermediate results.
  profile     where the time of our step goes: by kind of operation, and by part of the model.
  checkpoint  steps of ours, and how long they stop for a checkpoint: written first, or while they run.

What is compared runs in turn, once per repetition, so that a disturbance hits all alike; figures are medians.
--parts=gemm,step measures some of them.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import batches, checkpoints, harness, peers, profile
from benchmarks.harness import interleave, our_model
from xlnet_tf import errors
from xlnet_tf.config import Recompute, XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, option
from xlnet_tf.tpu.flops import step_flops

# TensorFlow is imported where it is needed, after its environment is set.

OURS, MODEL_GARDEN, HUGGING_FACE = "ours", "model_garden", "hugging_face"
TRAIN_STEPS = 10_000  # of the learning rate's schedule
PARTS = ("gemm", "step", "profile", "checkpoint")
GEMM_SIZES = (512, 1024, 2048, 4096)

# Of our step; what a mode is called says how the step is run.
MODES = (
    *("graph", "xla", "graph bfloat16", "xla bfloat16"),
    *("graph recompute", "xla recompute", "graph recompute cheap", "xla recompute cheap"),
)
PEER_MODES = {MODEL_GARDEN: ("graph", "xla"), HUGGING_FACE: ("eager", "fused", "compiled", "bfloat16")}
ALL_PEER_MODES = tuple(mode for modes in PEER_MODES.values() for mode in modes)
# The largest value that the project wants of each ratio.
GOALS = {
    "ours / model_garden": 0.55,
    "ours / hugging_face": 0.35,
    "bfloat16 / float32": 0.5,
    "graph recompute / graph": 1.35,
    "xla recompute / xla": 1.35,
    "graph recompute cheap / graph": 1.1,
    "temporaries, recompute": 1 / 3,
    "temporaries, recompute cheap": 1 / 2,
}

# Reads a line of settings and the batch, then answers each line, a mode, with the loss of a training step.
# eager has PyTorch's AdamW as it comes, the others its fused one; bfloat16 is autocast.
HUGGING_FACE_PROGRAM = """
import json, sys, torch, transformers
folder, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
torch.manual_seed(0)
setup = json.loads(sys.stdin.readline())
batch = {name: torch.tensor(values) for name, values in setup["batch"].items()}
model = transformers.XLNetLMHeadModel.from_pretrained(folder, dropout=setup["dropout"]).train()
compiled = torch.compile(model)
optimizers = [torch.optim.AdamW(model.parameters(), fused=fused, **setup["adam"]) for fused in (False, True)]
print("ANSWER 0", flush=True)
for line in sys.stdin:
    mode = json.loads(line)["mode"]
    optimizer = optimizers[mode != "eager"]
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=mode == "bfloat16"):
        loss = (compiled if mode == "compiled" else model)(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), setup["clip_norm"])
    optimizer.step()
    print("ANSWER", loss.item(), flush=True)
"""


class TrainingStep:
    """A training step of a model on one batch; loss_of takes features."""

    def __init__(self, loss_of: Callable, model, optimizer, batch: Mapping[str, np.ndarray], xla: bool):
        import tensorflow as tf

        # Arguments, not constants: what depends on them must not be computed while compiling.
        self._inputs = [tf.constant(values) for values in batch.values()]
        variables = model.trainable_variables
        self.state = {"model": model, "optimizer": optimizer}

        @tf.function(jit_compile=xla, autograph=False)
        def step(*inputs):
            with tf.GradientTape() as tape:
                loss = loss_of(dict(zip(batch, inputs, strict=True)))
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients([pair for pair in zip(gradients, variables) if pair[0] is not None])
            return loss

        self._step = step

    def __call__(self) -> float:
        return float(self._step(*self._inputs))

    def temporaries(self) -> int:
        """Returns the bytes that XLA plans for buffers without an argument, variable, constant or output."""
        import tensorflow as tf
        from tensorflow.compiler.xla.service import hlo_pb2

        specs = [tf.TensorSpec(value.shape, value.dtype) for value in self._inputs]
        compiled = self._step.experimental_get_compiler_ir(*specs)(stage="optimized_hlo_proto_serialized")
        buffers = hlo_pb2.HloProto.FromString(compiled).buffer_assignment.buffer_allocations
        return sum(
            buffer.size
            for buffer in buffers
            if not (
                buffer.is_entry_computation_parameter
                or buffer.is_constant
                or buffer.is_thread_local
                or buffer.maybe_live_out
            )
        )


def recomputed(mode: str) -> Recompute:
    """Returns what a mode computes again for the gradient."""
    return "cheap" if "recompute cheap" in mode else "recompute" in mode


def our_steps(
    config: XLNetConfig, batch: Mapping[str, np.ndarray], dropout: float, modes: Sequence[str]
) -> dict[str, TrainingStep]:
    """Returns mode -> step of our model; those that differ in xla only train the same variables."""
    import tensorflow as tf

    from xlnet_tf.models.pretrainer import target_losses
    from xlnet_tf.training.optimizer import OptimizerConfig, build_optimizer

    @functools.cache
    def trained(bfloat16: bool, recompute: Recompute):
        model = our_model(config, dropout, bfloat16=bfloat16, recompute=recompute)
        optimizer = build_optimizer(OptimizerConfig(), TRAIN_STEPS, config.n_layer)
        optimizer.build(model.trainable_variables)

        def loss(features):
            outputs = model(features, training=True)
            return tf.reduce_sum(target_losses(outputs)) / tf.reduce_sum(outputs["target_weights"])

        return loss, model, optimizer

    return {
        mode: TrainingStep(*trained("bfloat16" in mode, recomputed(mode)), batch, "xla" in mode)
        for mode in modes
    }


def model_garden_steps(
    config: XLNetConfig, batch: Mapping[str, np.ndarray], dropout: float, modes: Sequence[str]
) -> dict[str, TrainingStep]:
    """Returns mode -> step of Model Garden's model of the same size; both train the same variables."""
    import tensorflow as tf

    features = batches.model_garden_batch(batch)
    model = peers.model_garden_pretrainer(config, features, dropout, bi_data=True)
    optimizer = peers.keras_adamw()
    optimizer.build(model.trainable_variables)

    def loss(features):
        return tf.reduce_mean(peers.model_garden_losses(model, features))

    return {mode: TrainingStep(loss, model, optimizer, features, "xla" in mode) for mode in modes}


@contextlib.contextmanager
def hugging_face_steps(
    config: XLNetConfig,
    batch: Mapping[str, np.ndarray],
    dropout: float,
    modes: Sequence[str],
    python: str | None,
) -> Iterator[dict[str, Callable[[], float]]]:
    """Yields mode -> step of Hugging Face's XLNetLMHeadModel with our initial weights; none without a Python.

    All modes train the same variables; both directions are read forward.
    """
    make_model = functools.partial(our_model, config, dropout)
    with peers.hugging_face_like(python, HUGGING_FACE_PROGRAM, make_model) as peer:
        if peer is None:
            yield {}
            return
        arrays = {name: values.tolist() for name, values in batches.hugging_face_batch(batch).items()}
        peer.ask({"batch": arrays, "dropout": dropout, **peers.torch_adamw()})
        yield {mode: functools.partial(peer.ask, {"mode": mode}) for mode in modes}


def measure_step(
    config: XLNetConfig,
    batch_size: int,
    seq_len: int,
    num_predict: int,
    repeats: int,
    gemm_rates: Mapping[str, float],
    *,
    modes: Sequence[str] = MODES,
    peer_modes: Sequence[str] = ALL_PEER_MODES,
    dropout: float = 0.1,
    peer_python: str | None = None,
) -> dict[str, Any]:
    """Measures a training step of our model next to its peers', on the same inputs.

    All clip by one global norm and update with AdamW: ours is `training.optimizer`, the peers' are Keras' and
    PyTorch's.

    Args:
        batch_size: B, even with Model Garden, which reads the second half backward.
        gemm_rates: floating-point operations per second of measure_gemm, by number type.

    Returns:
        Two tables: for each implementation and mode the seconds of a step, its share of the gemm rate of its
        number type, the loss before the first update and, for our compiled modes, the temporaries in GB; and
        the ratios of GOALS that could be measured.
    """
    of_peer = _modes_by_peer(peer_modes, batch_size)
    batch = batches.make_batch(config, batch_size, seq_len, num_predict)
    first_loss: dict[str, float] = {}

    def recorded(name: str, step: Callable[[], float]) -> Callable[[], Any]:
        return lambda: first_loss.setdefault(name, float(step()))

    their_python = peer_python if of_peer[HUGGING_FACE] else None
    with hugging_face_steps(config, batch, dropout, of_peer[HUGGING_FACE], their_python) as peer_steps:
        steps = {OURS: our_steps(config, batch, dropout, modes), HUGGING_FACE: peer_steps}
        if of_peer[MODEL_GARDEN]:
            steps[MODEL_GARDEN] = model_garden_steps(config, batch, dropout, of_peer[MODEL_GARDEN])
        candidates = {
            f"{who} {mode}": recorded(f"{who} {mode}", step)
            for who in steps
            for mode, step in steps[who].items()
        }
        timings = interleave(candidates, repeats, "step")
    planned = [mode for mode in modes if "xla" in mode and "bfloat16" not in mode]
    temporaries = {mode: steps[OURS][mode].temporaries() for mode in planned}
    flops = step_flops(config, batch_size, seq_len, num_predict)
    seconds = {
        who: {mode: timings[f"{who} {mode}"].wall for mode in steps[who]} for who in steps if steps[who]
    }
    title = (
        f"Pretraining step, {config.n_layer} layers of {config.d_model}, batch {batch_size}, {seq_len} "
        f"tokens, {num_predict} targets: {flops / 1e9:,.1f} GFLOP"
    )
    reached = ratios(seconds, temporaries)
    return {
        title: _rows(seconds, temporaries, first_loss, flops, gemm_rates),
        "Ratios": [{"": name, "ratio": value, "goal": GOALS[name]} for name, value in reached.items()],
    }


def _modes_by_peer(peer_modes: Sequence[str], batch_size: int) -> dict[str, list[str]]:
    modes = {who: [mode for mode in known if mode in peer_modes] for who, known in PEER_MODES.items()}
    if modes[MODEL_GARDEN] and batch_size % 2:
        raise UserError(
            f"batch_size is {batch_size}: Model Garden needs an even one, half of it is read backward"
        )
    return modes


def _rows(
    seconds: Mapping[str, Mapping[str, float]],
    temporaries: Mapping[str, float],
    first_loss: Mapping[str, float],
    flops: float,
    gemm_rates: Mapping[str, float],
) -> list[dict[str, Any]]:
    return [
        {
            "": f"{who} {mode}",
            "s": value,
            "of the gemm rate": flops / value / gemm_rates["bfloat16" if "bfloat16" in mode else "float32"],
            "first loss": first_loss[f"{who} {mode}"],
            "GB of temporaries": temporaries[mode] / 1e9 if who == OURS and mode in temporaries else None,
        }
        for who, by_mode in seconds.items()
        for mode, value in by_mode.items()
    ]


def ratios(seconds: Mapping[str, Mapping[str, float]], temporaries: Mapping[str, float]) -> dict[str, float]:
    """Returns those of GOALS that the figures decide, by the best mode of each side."""

    def best(who: str, bfloat16: bool = False) -> float | None:
        seconds_of_modes = [
            value
            for mode, value in seconds.get(who, {}).items()
            if ("bfloat16" in mode) == bfloat16 and "recompute" not in mode
        ]
        return min(seconds_of_modes, default=None)

    ours = seconds[OURS]
    pairs = {
        "ours / model_garden": (best(OURS), best(MODEL_GARDEN)),
        "ours / hugging_face": (best(OURS), best(HUGGING_FACE)),
        "bfloat16 / float32": (best(OURS, bfloat16=True), best(OURS)),
        "graph recompute / graph": (ours.get("graph recompute"), ours.get("graph")),
        "xla recompute / xla": (ours.get("xla recompute"), ours.get("xla")),
        "graph recompute cheap / graph": (ours.get("graph recompute cheap"), ours.get("graph")),
        "temporaries, recompute": (temporaries.get("xla recompute"), temporaries.get("xla")),
        "temporaries, recompute cheap": (temporaries.get("xla recompute cheap"), temporaries.get("xla")),
    }
    return {name: over / under for name, (over, under) in pairs.items() if over and under}


def measure_gemm(repeats: int, dtype: str = "float32", sizes: Sequence[int] = GEMM_SIZES) -> dict[str, float]:
    """Measures matrix products; returns size -> floating-point operations per second."""
    import tensorflow as tf

    def product(size: int) -> Callable[[], Any]:
        left, right = (tf.cast(tf.random.normal([size, size]), dtype) for _ in range(2))
        return lambda: tf.matmul(left, right)[0, 0].numpy()

    timings = interleave({str(size): product(size) for size in sizes}, repeats, f"gemm {dtype}")
    return {size: 2 * int(size) ** 3 / timing.wall for size, timing in timings.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOptions(harness.SegmentOptions, harness.BenchmarkOptions):
    """What is measured, in which modes, on which batch."""

    parts: Sequence[str] = option(f"what to measure, of {', '.join(PARTS)}", PARTS, aliases=["what"])
    modes: Sequence[str] | None = option(
        f"our modes of the step, of {', '.join(MODES)}. Default: all that the processor computes with", None
    )
    peer_modes: Sequence[str] = option(
        "the peers' modes of the step: graph and xla of Model Garden, others of Hugging Face. Base in all "
        "of them and of ours takes more than 24 GB of memory",
        ALL_PEER_MODES,
    )
    batch_size: int = option("rows of the step's batch; even", 2, least=2)


def main(_: Sequence[str]) -> None:
    options = from_flags(StepOptions)
    harness.check_known("parts", options.parts, PARTS)
    harness.check_known("modes", options.modes, MODES)
    harness.check_known("peer_modes", options.peer_modes, ALL_PEER_MODES)
    sizes = {"seq_len": options.seq_len, "num_predict": options.targets, "repeats": options.repeats}
    config, rows = options.config, options.batch_size
    has_bfloat16 = harness.machine()["bfloat16"]
    modes = options.modes or [mode for mode in MODES if has_bfloat16 or "bfloat16" not in mode]
    figures: dict[str, Any] = {}
    if {"gemm", "step"} & set(options.parts):
        rates = {dtype: measure_gemm(options.repeats, dtype) for dtype in ("float32", "bfloat16")}
        figures["Matrix products, GFLOP/s"] = [
            {"": dtype} | {size: rate / 1e9 for size, rate in by_size.items()}
            for dtype, by_size in rates.items()
        ]
    if "step" in options.parts:
        best = {dtype: max(by_size.values()) for dtype, by_size in rates.items()}
        peer = {"peer_modes": options.peer_modes, "peer_python": options.peer_python}
        figures |= measure_step(config, rows, gemm_rates=best, modes=modes, **peer, **sizes)
    batch = batches.make_batch(config, rows, options.seq_len, options.targets)
    if "profile" in options.parts:
        for mode in (mode for mode in modes if "xla" not in mode):
            figures |= profile.measure_profile(our_steps(config, batch, 0.1, [mode]), options.repeats)
    if "checkpoint" in options.parts:
        step = our_steps(config, batch, 0.1, ["graph"])["graph"]
        figures |= checkpoints.measure_checkpoint(step, options.repeats)
    harness.publish(figures, options.output)


if __name__ == "__main__":
    define_flags(StepOptions)
    errors.run(main)
