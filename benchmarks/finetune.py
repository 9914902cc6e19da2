"""Measures fine-tuning and prediction on the CPU: next to the peers', every figure from this one run.

    python -m benchmarks.finetune --data=records/sst-2/train --layers=6 --peer_python=PYTHON

Each trains one epoch on the same sample of a classification set: forward, backward, clipping, AdamW.

  length        ours, batching by length: examples of like length in a batch, rows cut to it.
  packed        ours, packed batching: several examples in a row, in random order.
  fixed         ours, fixed batching: whole rows.
  hf dynamic    Hugging Face's XLNetForSequenceClassification in PyTorch, with our weights, in a process of
                --peer_python: random batches, padded to the longest row, the default of its Trainer.
  hf grouped    the same with like lengths together, as the Trainer's group_by_length did until transformers 4
                (in 5: train_sampling_strategy="group_by_length").
  bert, modernbert, deberta-v3
                what people would take instead, of the released base size and with random weights, grouped
                likewise; with --layers=6 half of their layers.
  model_garden  Model Garden's XLNetClassifier on whole rows; --peer_steps steps of it, not the epoch.

With --dtypes=float32,bfloat16 each runs in both: the peers by autocast. PyTorch's AdamW is its fused one.
They run in turn, a part of the epoch each, so that a disturbance hits all alike. Fixed costs are included:
the graphs that TensorFlow traces. Then all predict the labels of the sample, sorted by length.
"""

import contextlib
import dataclasses
import functools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import harness, peers
from benchmarks.harness import our_model
from benchmarks.step import TrainingStep
from xlnet_tf import errors
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, option
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records.examples import ExampleSet, ExampleWriter
from xlnet_tf.text.special_tokens import PAD_ID

OURS, MODEL_GARDEN = ("length", "packed", "fixed"), "model_garden"
HUGGING_FACE = ("hf dynamic", "hf grouped")
DTYPES = ("float32", "bfloat16")
KINDS = ("classification", "regression")
_PARTS = 5  # of an epoch: how often all take turns

# Answers to the rows by keeping them; to a mode and {"steps": N} by N steps of its epoch; else by predicting.
PEER_PROGRAM = f"""{peers.TORCH_BEGIN}
from transformers.trainer_pt_utils import get_length_grouped_indices

def make(name):
    name, labels = name.removesuffix(" bfloat16").removesuffix(" recompute"), sizes["num_labels"]
    if not name.startswith("hf"):
        return classifiers.from_config(other_config(name, num_labels=labels))
    config = transformers.XLNetConfig.from_pretrained(folder, num_labels=labels)
    config.dropout = config.summary_last_dropout = sizes["dropout"]
    return classifiers.from_pretrained(folder, config=config)

def batch(numbers):
    width = max(len(rows[n]) for n in numbers)
    ids = torch.full([len(numbers), width], 5)
    for row, n in enumerate(numbers):
        ids[row, width - len(rows[n]):] = torch.tensor(rows[n])
    return dict(input_ids=ids, attention_mask=(ids != 5).long())

for line in sys.stdin:
    request = json.loads(line)
    answer = 0.0
    if "rows" in request:
        rows, labels, size = request["rows"], torch.tensor(request["labels"]), request["batch_size"]
        sizes, runs = request, dict()
        print("ANSWER", answer, flush=True)
        continue
    mode = request["mode"]
    if mode not in runs:
        model = make(mode)
        if mode.endswith(" recompute"):
            model.gradient_checkpointing_enable()
        order = list(range(len(rows)))
        random.Random(0).shuffle(order)
        if not mode.startswith("hf dynamic"):
            lengths = [len(row) for row in rows]
            order = get_length_grouped_indices(lengths, size, generator=torch.Generator().manual_seed(0))
        adam = torch.optim.AdamW(model.parameters(), fused=True, **request["adam"])
        runs[mode] = model.train(), adam, iter([order[i:i + size] for i in range(0, len(order), size)])
    model, adam, batches = runs[mode]
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=mode.endswith(" bfloat16"))
    for _ in range(request.get("steps", 0)):
        numbers = next(batches)
        adam.zero_grad()
        with autocast:
            loss = model(**batch(numbers), labels=labels[numbers]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), request["clip_norm"])
        adam.step()
        answer = float(loss)
    if "steps" not in request:
        order = sorted(range(len(rows)), key=lambda n: -len(rows[n]))
        with torch.inference_mode(), autocast:
            for first in range(0, len(rows), size):
                model.eval()(**batch(order[first:first + size])).logits.tolist()
    print("ANSWER", json.dumps(answer), flush=True)
"""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of the measurement; each field is a flag."""

    data: str = option("folder of a classification set, such as records/sst-2/train")
    examples: int = option("examples of it, drawn at random", 2000, least=1)
    batch_size: int = option("rows of a step", 32, least=1)
    modes: Sequence[str] = option("which of the epochs named above to run", (*OURS, *HUGGING_FACE))
    dtypes: Sequence[str] = option("types of activations, of float32 and bfloat16", ("float32",))
    dropout: float = option("rate of all dropouts", 0.1, least=0, most=1)
    peer_steps: int = option("steps of Model Garden's; 0: none", 3, least=0)
    seed: int = option("random seed for the sample, initial weights and order", 0, least=0)

    def __post_init__(self):
        known = {"modes": OURS + HUGGING_FACE + peers.OTHERS, "dtypes": DTYPES}
        for name, choices in known.items():
            if unknown := set(getattr(self, name)) - {*choices}:
                raise UserError(
                    f"{name} has {', '.join(sorted(unknown))}; expected some of {', '.join(choices)}"
                )
        if "length" not in self.modes:
            raise UserError("modes lacks length, which the others are compared with")


def sample(plan: Plan, folder: str) -> ExampleSet:
    """Writes the examples for the measurement."""
    source = ExampleSet.load(plan.data)
    if source.task != "classification" or source.settings.get("kind") not in KINDS:
        raise UserError(f"{plan.data} has examples for {source.task}: expected texts with one label each")
    chosen = np.random.default_rng(plan.seed).permutation(source.records)[: plan.examples]
    arrays = source.arrays()
    arrays.pop("index")
    with ExampleWriter(
        folder,
        task=source.task,
        split=source.split,
        tokenizer=source.load_tokenizer(),
        seq_len=source.seq_len,
        columns=source.layout.columns[3:],
        settings=source.settings,
    ) as writer:
        for number in chosen:
            writer.write({name: values[number] for name, values in arrays.items()}, {})
    return ExampleSet.load(folder)


def _outputs(examples: ExampleSet) -> int:
    """Returns the logits of an example: one for a regression."""
    return len(examples.settings["labels"]) or 1


class Ours:
    """Our trainer on a set."""

    def __init__(self, config: XLNetConfig, plan: Plan, data: str, batching: str, dtype: str):
        import tensorflow as tf
        import tf_keras
        from official.core import exp_factory

        from xlnet_tf.layers.kernels import device
        from xlnet_tf.tasks import finetuning
        from xlnet_tf.tasks.classification import task as classification
        from xlnet_tf.training import runtime
        from xlnet_tf.training.optimizer import build_optimizer
        from xlnet_tf.training.trainer import Trainer

        tf_keras.utils.set_random_seed(plan.seed)
        params = exp_factory.get_exp_config(classification.EXPERIMENT)
        model = config.to_dict() | {"dropout": plan.dropout, "attention_dropout": plan.dropout}
        fields = {name: value for name, value in model.items() if hasattr(params.task.model, name)}
        rows = {"input_path": data, "global_batch_size": plan.batch_size}
        params.override({"task": {"model": fields, "train_data": rows, "batching": batching, "epochs": 1.0}})
        runtime.prepare(params.runtime)
        task = finetuning.build_task(params, classification.ClassificationTask)
        optimizer = build_optimizer(params.trainer.optimizer_config, params.trainer.train_steps, task.n_layer)
        with runtime.number_type(dtype):
            self.trainer = Trainer(params, task, task.build_model(), optimizer, evaluate=False)
        self._number = tf.constant
        batching = self.trainer.batching
        lengths = batching.lengths_of_steps(0, params.trainer.train_steps, device.length_multiple())
        self.positions = sum(map(batching.tokens_of_step, lengths))

    def run(self, steps: int) -> None:
        self.trainer.train(self._number(steps))


def our_predictions(ours: Ours) -> None:
    """Predicts the sample's labels, sorted by length, as `Predictor` does."""
    import tensorflow as tf

    from xlnet_tf.layers.kernels import device
    from xlnet_tf.records.batching import Batches
    from xlnet_tf.records.example_reader import example_dataset
    from xlnet_tf.tasks.prediction import computed_at_once

    task, model = ours.trainer.task, ours.trainer.model
    rows = task.task_config.train_data.global_batch_size
    batches = Batches(task.example_set, rows, repeat=False, by_length=True)

    @functools.partial(tf.function, autograph=False)
    def step(features, length):
        return model(ours.trainer.batching.cut(features, length), training=False)

    def compute(number, features):
        return step(features, tf.constant(batches.longest(number))).numpy()

    list(computed_at_once(compute, enumerate(example_dataset(batches)), device.steps_at_once()))


def model_garden_step(config: XLNetConfig, plan: Plan, examples: ExampleSet) -> TrainingStep:
    """Returns a training step of Model Garden's classifier on whole rows."""
    import tensorflow as tf
    from official.nlp.modeling.models import xlnet

    arrays = examples.arrays()
    ids = arrays["input_ids"][: plan.batch_size].astype(np.int32)
    features = {
        "input_word_ids": ids,
        # 1 for tokens, as Model Garden's code has it; its documentation says the opposite.
        "input_mask": (ids != PAD_ID).astype(np.float32),
        "input_type_ids": arrays["segment_ids"][: plan.batch_size].astype(np.int32),
    }
    labels = tf.constant(arrays["label"][: plan.batch_size])
    network = peers.model_garden_network(config, plan.dropout, two_stream=False)
    classes = _outputs(examples)
    model = xlnet.XLNetClassifier(network, classes, dropout_rate=plan.dropout, summary_type="last")
    model(features)
    optimizer = peers.keras_adamw()
    optimizer.build(model.trainable_variables)

    def loss(features):
        logits = model(features, training=True)
        if classes == 1:
            return tf.reduce_mean(tf.square(logits[:, 0] - labels))
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    return TrainingStep(loss, model, optimizer, features, xla=False)


@contextlib.contextmanager
def hugging_face(
    config: XLNetConfig, plan: Plan, examples: ExampleSet, python: str | None
) -> Iterator[peers.HuggingFace | None]:
    """Starts Hugging Face's process and gives it the sample; None without a Python."""
    make_model = functools.partial(our_model, config, plan.dropout)
    with peers.hugging_face_like(python, PEER_PROGRAM, make_model) as peer:
        if peer:
            arrays, lengths = examples.arrays(), examples.lengths()
            rows = [ids[-length:].tolist() for ids, length in zip(arrays["input_ids"], lengths)]
            sizes = {"num_labels": _outputs(examples), "batch_size": plan.batch_size, "dropout": plan.dropout}
            peer.ask({"rows": rows, "labels": arrays["label"].tolist(), **sizes})
        yield peer


def _rows_of(plan: Plan, modes: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Returns name -> (mode, type) of those of the modes that the plan has; bfloat16 is part of the name."""
    return {
        mode if dtype == "float32" else f"{mode} {dtype}": (mode, dtype)
        for dtype in plan.dtypes
        for mode in modes
        if mode in plan.modes
    }


def _compared_with(name: str, plan: Plan) -> str:
    """Returns our row that a row is compared with: training or prediction in its type, else in the first."""
    dtype = "bfloat16" if name.endswith(" bfloat16") else plan.dtypes[0]
    return ("predict " if "predict" in name else "") + "length" + " bfloat16" * (dtype == "bfloat16")


def _run_in_turn(
    plan: Plan,
    examples: ExampleSet,
    ours: Mapping[str, Ours],
    peer: peers.HuggingFace | None,
    timed: Callable,
) -> None:
    """Trains an epoch of each, a part at a time, then predicts; `timed` gets names and functions."""
    request = peers.torch_adamw()
    peer_rows = _rows_of(plan, HUGGING_FACE + peers.OTHERS) if peer else {}
    runs: dict[str, Callable[[int], Any]] = {name: trainer.run for name, trainer in ours.items()}
    for name in peer_rows:
        runs[name] = lambda steps, name=name: peer.ask({"mode": name, "steps": steps, **request})
    steps = -(-examples.records // plan.batch_size)
    ends = sorted({steps * part // _PARTS for part in range(_PARTS + 1)})
    with ProgressBar(total=steps * len(runs), desc="epoch", unit="step") as bar:
        for begin, end in zip(ends, ends[1:]):
            for name, run in runs.items():
                bar.set_postfix_str(name)
                timed(name, functools.partial(run, end - begin))
                bar.update(end - begin)
    for name, trainer in ours.items():
        if name.startswith("length"):
            timed(f"predict {name}", functools.partial(our_predictions, trainer))
    for name, (mode, _) in peer_rows.items():
        if mode != "hf dynamic":
            timed(f"predict {name}", functools.partial(peer.ask, {"mode": name, **request}))


def measure(config: XLNetConfig, plan: Plan, peer_python: str | None = None) -> dict[str, Any]:
    """Runs an epoch of each implementation in turn, and predicts."""
    seconds: dict[str, float] = {}

    def timed(name: str, function: Callable[[], Any]) -> None:
        begin = time.perf_counter()
        function()
        seconds[name] = seconds.get(name, 0) + time.perf_counter() - begin

    with contextlib.ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory())
        examples = sample(plan, data)
        config = dataclasses.replace(config, n_token=examples.tokenizer["vocab_size"])
        ours = {name: Ours(config, plan, data, *mode) for name, mode in _rows_of(plan, OURS).items()}
        peer = stack.enter_context(hugging_face(config, plan, examples, peer_python))
        _run_in_turn(plan, examples, ours, peer, timed)
        by_example = {name: seconds[name] / examples.records for name in seconds}
        if plan.peer_steps:
            step = model_garden_step(config, plan, examples)
            step()
            for _ in range(plan.peer_steps):
                timed(MODEL_GARDEN, step)
            by_example[MODEL_GARDEN] = seconds[MODEL_GARDEN] / plan.peer_steps / plan.batch_size
        computed = -(-examples.records // plan.batch_size) * plan.batch_size * examples.seq_len
        positions = {name: trainer.positions / computed for name, trainer in ours.items()}
        title = (
            f"{plan.examples:,} examples of {plan.data}, {config.n_layer} layers, batches of "
            f"{plan.batch_size} x {examples.seq_len}; "
            f"{examples.lengths().mean() / examples.seq_len:.1%} of the positions have text"
        )
        rows = [
            {
                "": name,
                "ms an example": 1e3 * value,
                "length's / this": by_example[_compared_with(name, plan)] / value,
                "positions": positions.get(name),
            }
            for name, value in by_example.items()
        ]
        return {title: rows}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneOptions(harness.BenchmarkOptions):
    """With which model and peer it is measured."""

    repeats: int = option("without effect: each epoch runs once", 1, least=1)


def main(_: Sequence[str]) -> None:
    options = from_flags(FinetuneOptions)
    figures = measure(options.config, from_flags(Plan), peer_python=options.peer_python)
    harness.publish(figures, options.output)


if __name__ == "__main__":
    define_flags(FinetuneOptions)
    define_flags(Plan)
    errors.run(main)
