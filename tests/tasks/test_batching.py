"""Batches by length change no number: losses, gradients and predictions are those of whole rows."""

import dataclasses
import functools
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import yaml
from official.core import exp_factory, task_factory

from tests.helpers.profiles import mostly_integration
from tests.helpers.training import toy_finetuning
from tests.helpers.training.alone import run_alone
from xlnet_tf import task_registry
from xlnet_tf.errors import UserError
from xlnet_tf.layers.kernels import device
from xlnet_tf.records.batching import LENGTHS_FILE
from xlnet_tf.records.examples import ExampleSet, ExampleWriter
from xlnet_tf.tasks import finetuning
from xlnet_tf.text.packing import pack
from xlnet_tf.text.special_tokens import PAD_ID
from xlnet_tf.tpu import synthetic
from xlnet_tf.training.optimizer import build_optimizer
from xlnet_tf.training.progress import read_history
from xlnet_tf.training.trainer import Trainer

T, ROWS, SEQUENCES = 32, 24, 3
MODEL = {"n_layer": 1, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32}
STRATEGY = tf.distribute.OneDeviceStrategy("CPU:0")


def values(rng, columns, inside: np.ndarray) -> dict:
    """Returns what an example has besides its text, which is `inside` its row."""
    first, last = np.sort(rng.choice(np.flatnonzero(inside)[:-2], 2))
    found = {
        "tags": np.where(inside, rng.integers(-1, 3, T), -1),
        "answer_mask": inside & np.roll(inside, -1),
        "answer_first": int(first),
        "answer_last": int(last),
        "is_impossible": int(rng.integers(2)),
        "relevance": rng.permutation([1, 0, 0]),
        "label": int(rng.integers(3)),
    }
    return {column.name: found[column.name] for column in columns}


def write_examples(folder, task: str, tokenizer, seed: int) -> ExampleSet:
    """Writes examples of random texts of 3 to 20 tokens, padded on the side that the task's builder pads."""
    padding = "right" if task == "question_answering" else "left"
    rng = np.random.default_rng(seed)
    shape = folder.parent / f"shape of {folder.name}"
    sizes = {"seq_len": T, "vocab_size": tokenizer.vocab_size, "num_labels": 3, "sequences": SEQUENCES}
    synthetic.examples(str(shape), task, **sizes)
    like = ExampleSet.load(shape)
    columns = like.layout.columns[3:]
    kind = {"task": like.task, "sequences": like.sequences, "settings": like.settings, "columns": columns}
    with ExampleWriter(folder, split=folder.name, tokenizer=tokenizer, seq_len=T, **kind) as writer:
        for number in range(ROWS):
            texts = [rng.integers(20, 60, rng.integers(3, 19)).tolist() for _ in range(like.sequences)]
            packed = [pack(ids, seq_len=T, padding=padding)._asdict() for ids in texts]
            tokens = {name: np.concatenate([text[name] for text in packed]) for name in packed[0]}
            inside = np.array(packed[0]["input_ids"]) != PAD_ID
            writer.write({**tokens, **values(rng, columns, inside)}, {"id": str(number)})
    return ExampleSet.load(folder)


def settings(folder, task: str, **changes):
    params = exp_factory.get_exp_config(task_registry.find(task).experiment)
    model = MODEL | {"dropout": 0.0, "attention_dropout": 0.0} | changes.pop("model", {})
    data = {
        f"{name}_data": {"input_path": str(folder / split), "global_batch_size": 8}
        | changes.pop(f"{name}_data", {})
        for name, split in (("train", "train"), ("validation", "dev"))
    }
    params.override({"task": {"model": model, **data, **changes}, "trainer": {"train_steps": 6}})
    return params


def build_trainer(params) -> Trainer:
    task_class = task_factory.get_task_cls(type(params.task))
    tf_keras.utils.set_random_seed(2)  # some weights make near ties, which rounding decides
    with STRATEGY.scope():
        task = finetuning.build_task(params, task_class)
        optimizer = build_optimizer(params.trainer.optimizer_config, 6, task.n_layer)
        return Trainer(params, task, task.build_model(), optimizer, evaluate=task.validation_set is not None)


def assert_close(found, expected):
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        largest = np.abs(other).max(initial=2e-2)  # some gradients are zero but for rounding
        np.testing.assert_allclose(np.asarray(one) / largest, np.asarray(other) / largest, atol=2e-6)


MODELS = [
    *((task, {}) for task in task_registry.tasks()),
    ("classification", {"segment_len": 8}),
    ("tagging", {"segment_len": 8}),
    ("multiple_choice", {"segment_len": 8, "memory_gradient": 3}),
]


@pytest.mark.parametrize(
    ("task", "model"),
    [pytest.param(*case, marks=[pytest.mark.integration] * (case != ("tagging", {}))) for case in MODELS],
)
def test_cut_rows_give_the_numbers_of_whole_ones(tmp_path, small_tokenizer, task, model):
    for seed, split in enumerate(("train", "dev")):
        write_examples(tmp_path / split, task, small_tokenizer, seed)
    lengths = {"lengths": [16, 24]}
    params = settings(tmp_path, task, train_data=lengths, validation_data=lengths, model=model)
    params.trainer.accumulation_steps = 1 + bool(model)  # micro-batches of a dynamic length, too
    trainer = build_trainer(params)
    task, model = trainer.task, trainer.model
    assert trainer.batching.compiled_lengths == [16, 24]

    @functools.partial(tf.function, autograph=False)
    def gradients(features, length):
        return STRATEGY.run(lambda rows: trainer.replica_gradients(rows, length)[:3], (features,))

    @functools.partial(tf.function, autograph=False)
    def predictions(features, length):
        cut = trainer.eval_batching.cut(features, length)
        return task.evaluation_rows(cut, model(cut, training=False))

    for batching, compute in ((trainer.batching, gradients), (trainer.eval_batching, predictions)):
        batches = batching.batches
        for step, features in enumerate(batching.dataset().take(3)):
            lengths = [batches.length(step)]
            if batching.has_dynamic_length:  # one graph for all lengths
                lengths.append(tf.constant(batches.longest(step)))
            whole = comparable(compute(features, None), features)
            for length in lengths:
                assert_close(comparable(compute(features, length), features), whole)


@pytest.mark.parametrize("task", mostly_integration(task_registry.tasks(), "multiple_choice"))
def test_packed_rows_give_the_numbers_of_whole_ones(tmp_path, small_tokenizer, task):
    write_examples(tmp_path / "train", task, small_tokenizer, 0)
    params = settings(tmp_path, task, batching="packed", validation_data={"input_path": ""})
    params.trainer.accumulation_steps = 2
    trainer = build_trainer(params)
    batches = trainer.batching.batches
    fixed = dataclasses.replace(batches, micro_batches=0, cut_to=())
    whole = 8 * batches.examples.sequences
    assert max(batches.cut_to) <= whole / 2 * 0.75

    @functools.partial(tf.function, autograph=False)
    def gradients(features, rows):
        return STRATEGY.run(lambda inputs: trainer.replica_gradients(inputs, rows)[:3], (features,))

    for step, features in enumerate(trainer.batching.dataset().take(3)):
        assert sorted(features["index"].numpy()) == sorted(fixed.numbers(step))
        expected = gradients(features, None)
        for rows in (batches.length(step), tf.constant(batches.rows(step)), whole // 2):
            assert_close(gradients(features, rows), expected)


def comparable(rows, features):
    """Leaves out of predictions what cannot be an answer, and what padding gets."""
    if not isinstance(rows, dict):
        return rows
    if "start_top_index" in rows:
        likely = rows["start_top_log_probs"] > -30
        rows["start_top_index"] = tf.where(likely, rows["start_top_index"], 0)
        likely = likely[..., None] & (rows["end_top_log_probs"] > -30)
        rows["end_top_index"] = tf.where(likely, rows["end_top_index"], 0)
        for part in ("start", "end"):
            rows[f"{part}_top_log_probs"] = tf.exp(rows[f"{part}_top_log_probs"])
            rows[f"{part}_top_index"] = tf.sort(rows[f"{part}_top_index"])  # of near ties either is first
    if "tags" in rows:
        is_token = features["input_mask"] > 0
        rows["tags"] = tf.where(is_token, rows["tags"], 0)
        rows["logits"] = tf.where(is_token[..., None], rows["logits"], 0)
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory, small_tokenizer):
    """Sets to train and to evaluate on, next to which tests write what has a name of its own."""
    folder = tmp_path_factory.mktemp("sets")
    for seed, split in enumerate(("train", "dev")):
        write_examples(folder / split, "classification", small_tokenizer, seed)
    return folder


def finetune(params, folder) -> dict[str, float]:
    return finetuning.finetune(params, task_factory.get_task_cls(type(params.task)), STRATEGY, str(folder))


@pytest.mark.integration
def test_new_runs_are_by_length_and_earlier_ones_keep_their_batches(folder):
    new, begun = settings(folder, "classification"), settings(folder, "classification", batching="fixed")
    for name, params in (("new", new), ("begun", begun)):
        finetune(params, folder / name)
    assert new.task.batching == "length" and begun.task.batching == "fixed"
    path = folder / "begun" / "params.yaml"  # as earlier versions wrote it
    earlier = yaml.safe_load(path.read_text())
    for name in ("batching", "sort_window"):
        del earlier["task"][name]
    del earlier["task"]["train_data"]["lengths"]
    path.write_text(yaml.dump(earlier))
    for name, batching in (("new", "length"), ("begun", "fixed")):
        again = settings(folder, "classification")
        finetune(again, folder / name)
        assert again.task.batching == batching
    with pytest.raises(UserError, match="task.batching: length there, fixed now"):
        finetune(settings(folder, "classification", batching="fixed"), folder / "new")


@pytest.mark.integration
def test_steps_that_only_compile_change_nothing(folder):
    data = {"lengths": [16, 32]}
    with device.assume("tpu"):
        trainer = build_trainer(settings(folder, "classification", train_data=data))
    with STRATEGY.scope():
        trainer.train(tf.constant(2))
        variables = [*trainer.model.variables, *trainer.optimizer.variables, *trainer.guard.variables]
        metrics = [trainer.train_loss, *trainer.train_metrics]
        variables += [trainer.global_step, *(v for metric in metrics for v in metric.variables)]
        before = [variable.numpy() for variable in variables]
        trainer.compile_all()
    changed = [v.name for v, value in zip(variables, before) if not np.array_equal(v.numpy(), value)]
    assert set(changed) <= {"keep:0", "bias_correction:0"}  # of a step alone
    assert all(trainer.steps_of_length(n).experimental_get_tracing_count() == 1 for n in (16, 32))


@pytest.mark.integration
def test_devices_agree(tmp_path, small_tokenizer):
    for split, count in (("records", 40), ("dev", 21)):
        toy_finetuning.make_examples(tmp_path / split, small_tokenizer, count)
    program = """
import pathlib, sys; from tests.helpers.training.worker import finetune; folder = pathlib.Path(sys.argv[1])
for how in ("length", "packed"):
    for n in (1, 4): finetune(folder, folder / f"{how}-{n}", "mirrored", how, devices=n)
"""
    ended = run_alone("-c", program, tmp_path)
    assert ended.returncode == 0, ended.stderr[-3000:]
    for how in ("length", "packed"):
        histories = [read_history(str(tmp_path / f"{how}-{devices}" / "history.jsonl")) for devices in "14"]
        one, four = ([line.get("training_loss") for line in history] for history in histories)
        assert len(one) > 3
        np.testing.assert_allclose(np.array(four, float), np.array(one, float), rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batching": "short"}, "batching is 'short': expected one of length, packed, fixed"),
        ({"train_data": {"lengths": [12, 32]}}, r"\[12, 32\]: expected multiples of 8"),
        ({"model": {"segment_len": 16}, "train_data": {"lengths": [8, 32]}}, "expected multiples of 16"),
        ({"train_data": {"lengths": [8]}}, "the tokens of its longest example"),
        ({"train_data": {"lengths": [0, 32]}}, "ascending numbers from 1 to 32"),
        ({"validation_data": {"lengths": [8]}}, "lengths for .*dev are .* the tokens of its longest example"),
        ({"batching": "packed", "train_data": {"lengths": [16, 32]}}, "lengths is for rows of one"),
        ({"batching": "packed", "model": {"segment_len": 16}}, "model.segment_len is for rows of one text"),
        ({"sort_window": 0}, "sort_window is 0: expected at least 1 batch"),
    ],
)
def test_batches_that_cannot_be_are_refused(folder, changes, message):
    with pytest.raises(UserError, match=message):
        finetune(settings(folder, "classification", **changes), folder / "run")
    assert not (folder / "run").exists()


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda index: index[:-30], "is damaged.*remove it, and it will be made again"),
        (lambda index: index[:200] + bytes([index[200] ^ 1]) + index[201:], "is damaged.*remove it"),
        (None, "is of other examples than those next to it: remove it"),
    ],
)
def test_nothing_is_trained_with_a_stale_or_damaged_index(folder, tmp_path, split, damage, message):
    """Stale: that of the other set."""
    folder = shutil.copytree(folder, tmp_path / "sets")
    other = {"train": "dev", "dev": "train"}[split]
    indexes = {}
    for name in (split, other):
        ExampleSet.load(folder / name).lengths()
        indexes[name] = (folder / name / LENGTHS_FILE).read_bytes()
    (folder / split / LENGTHS_FILE).write_bytes(damage(indexes[split]) if damage else indexes[other])
    with pytest.raises(UserError, match=message):
        finetune(settings(folder, "classification"), folder / "run")
    assert not (folder / "run").exists()
