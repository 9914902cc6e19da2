"""What earlier code wrote is read, resumed, evaluated, exported and served with the numbers of that code.

README.md says what artefacts.tar.xz holds and how it was made.
"""

import json
import pathlib
import shutil
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import make
from tests.helpers.commands import run_command
from tests.helpers.records.builders import contents
from xlnet_tf import task_registry
from xlnet_tf.checkpoints import open_checkpoint
from xlnet_tf.checkpoints.model_card import ModelCard
from xlnet_tf.serving.sources import open_served
from xlnet_tf.text import ties
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.tokenizer import XLNetTokenizer

CLOSE = {"rtol": 1e-4, "atol": 2e-5}  # other machines round otherwise
TASKS = [
    task if task == "classification" else pytest.param(task, marks=pytest.mark.integration)
    for task in make.BUILDERS
]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("artefacts")
    with tarfile.open(make.ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def artefacts(unpacked, monkeypatch):
    """The artefacts' folder, which is the working directory, as it was when they were made."""
    monkeypatch.chdir(unpacked)
    return unpacked


def read_lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def best_answers(question):
    """Returns the n best answers to a question, as predictions of examples have them, as answers are."""
    odds = json.loads(pathlib.Path("predictions/squad/null_odds.json").read_text())[question]
    answers = [
        {
            "answer": one["text"],
            "start": one["begin"],
            "end": one["begin"] + len(one["text"]),
            "score": float(np.exp(one["start_log_prob"] + one["end_log_prob"])),
        }
        for one in json.loads(pathlib.Path("predictions/squad/nbest_predictions.json").read_text())[question]
    ]
    return {"answers": [one for one in answers if one["answer"]], "null_odds": odds}


def questions():
    """Yields the questions of squad-dev.json with their passages."""
    [article] = json.loads(pathlib.Path("squad-dev.json").read_text())["data"]
    for paragraph in article["paragraphs"]:
        for asked in paragraph["qas"]:
            yield asked["id"], {"question": asked["question"], "context": paragraph["context"]}


ENTITY = {"entity": "text", "label": "label", "start": "start", "end": "end"}  # as answers have one
# By task: the texts of its dev examples, and what the predictions of the built examples say of them.
TEXTS_AND_PREDICTIONS = {
    "classification": lambda: [
        ({"text": row["text"]}, {"label": row["prediction"], "probabilities": row["probabilities"]})
        for row in read_lines("predictions/classification/predictions.jsonl")
    ],
    "regression": lambda: [
        ({"text": row["text"]}, {"value": row["prediction"]})
        for row in read_lines("predictions/regression/predictions.jsonl")
    ],
    "question_answering": lambda: [(row, best_answers(question)) for question, row in questions()],
    "multiple_choice": lambda: [
        (
            {name: row[name] for name in ("context", "question", "options")},
            {"option": predicted["answer_text"], "probabilities": predicted["probabilities"]},
        )
        for row, predicted in zip(
            read_lines("choices-dev.jsonl"), read_lines("predictions/choice/predictions.jsonl"), strict=True
        )
    ],
    "tagging": lambda: [
        (
            {"text": row["text"]},
            {"entities": [{name: e[old] for name, old in ENTITY.items()} for e in row["entities"]]},
        )
        for row in read_lines("predictions/tagging/predictions.jsonl")
    ],
    "ranking": lambda: [
        (
            {"query": row["query"], "candidates": [passage["text"] for passage in row["passages"]]},
            {"scores": [passage["score"] for passage in row["passages"]]},
        )
        for row in read_lines("predictions/ranking/predictions.jsonl")
    ],
}


@pytest.mark.integration
@pytest.mark.parametrize("task", task_registry.tasks())
def test_texts_are_answered_with_the_numbers_of_built_examples(artefacts, task):
    entry = task_registry.find(task)
    name = next(name for name in (task, *entry.aliases) if name in make.BUILDERS)
    rows, predictions = zip(*TEXTS_AND_PREDICTIONS[task](), strict=True)
    model = entry.load("model").from_pretrained(f"runs/{name}", **entry.model_options)
    answers = model.answer(**{key: [row[key] for row in rows] for key in rows[0]})
    assert len(answers) == len(predictions) > 1
    for answer, predicted in zip(answers, predictions):
        for entity in answer.get("entities", ()):  # whose probabilities the file lacks
            del entity["score"]
        if task == "question_answering":  # the file has each text once
            first = {}
            for one in answer["answers"]:
                first.setdefault(one["answer"], one)
            answer["answers"] = [*first.values()]
        assert_alike({key: answer[key] for key in predicted}, predicted)


def assert_alike(found, expected, path=""):
    """Compares what JSON holds: numbers nearly, all else exactly."""
    assert type(found) is type(expected) or {type(found), type(expected)} == {int, float}, path
    if isinstance(expected, dict):
        assert list(found) == list(expected), path
        for name, value in expected.items():
            assert_alike(found[name], value, f"{path}/{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), path
        for place, (one, other) in enumerate(zip(found, expected)):
            assert_alike(one, other, f"{path}/{place}")
    elif isinstance(expected, float):
        np.testing.assert_allclose(found, expected, **CLOSE, err_msg=path)
    else:
        assert found == expected, path


@pytest.mark.parametrize("task", ["pretraining", *make.BUILDERS])
def test_builders_write_the_same_bytes(artefacts, tmp_path, task):
    module, *flags = make.builder_command(task, str(tmp_path))
    run_command(module, *flags)
    found = contents(tmp_path)
    expected = contents(artefacts / ("records" if task == "pretraining" else f"examples/{task}"))
    assert found.keys() == expected.keys()
    for name in [name for name in expected if name.endswith("manifest.json")]:
        # Counts for people and the rule for ties were added; so the manifest's checksum of itself is another.
        one, other = json.loads(found.pop(name)), json.loads(expected.pop(name))
        assert one.pop("manifest_sha256") and other.pop("manifest_sha256")
        assert one.pop("ties") == ties.RULE
        assert one.pop("statistics").items() >= other.pop("statistics").items()
        assert one == other
    assert not [name for name in expected if found[name] != expected[name]]


def losses(run: pathlib.Path) -> dict:
    """Returns what a run's history has of each step, without its speed."""
    lines = map(json.loads, (run / "history.jsonl").read_text().splitlines())
    return {
        f"{line['kind']} {line['step']}": {n: v for n, v in line.items() if "per_second" not in n}
        for line in lines
    }


@pytest.mark.integration
@pytest.mark.parametrize("task", ["pretraining", "classification"])
def test_a_run_resumes_with_the_same_losses(artefacts, tmp_path, task):
    run = artefacts / "runs" / task
    expected = losses(run)
    shutil.copytree(run, tmp_path / "run")
    history = (run / "history.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in history if json.loads(line)["step"] <= make.STEPS]
    (tmp_path / "run" / "history.jsonl").write_text("".join(kept))
    module, *flags = make.training_command(task, str(tmp_path / "run"))
    run_command(module, *flags)
    found = losses(tmp_path / "run")
    assert len(found) >= 2 * make.STEPS
    for name, values in expected.items():
        for threshold in [key for key in values if key.endswith("threshold")]:
            values.pop(threshold)  # earlier code kept an example's own score, not the middle to the next
            found[name].pop(threshold)
    assert_alike({name: found[name] for name in expected}, expected)
    assert (tmp_path / "run" / f"ckpt-{2 * make.STEPS}.index").exists()
    assert_card_is_complete(tmp_path / "run", task)


def assert_card_is_complete(folder: pathlib.Path, task: str):
    """A run that resumes gets a model card, which says what the files of the earlier code say."""
    written = json.loads((folder / "model.json").read_text())
    card = ModelCard.read(str(folder))
    for name in ("params.yaml", "manifest.json", "metrics.json", "best/metrics.json"):
        if (folder / name).exists():
            (folder / name).rename(folder / f"{name}.aside")
    assert ModelCard.read(str(folder)) == card
    assert written["task"] == ("language_model" if task == "pretraining" else task)
    if task == "classification":
        assert written["labels"] == ["bad", "good"] and written["settings"]["clamp_len"] == 5
        assert written["origin"] == {"init_checkpoint": "runs/pretraining"}
        assert list(written["thresholds"]) == ["alert_threshold"] and written["metrics"]["step"] > 0


@pytest.mark.parametrize("task", TASKS)
def test_predictions_and_scores_are_the_same(artefacts, tmp_path, task):
    run = f"--model_dir=runs/{task}", f"--data=examples/{task}/dev", f"--output_dir={tmp_path}"
    run_command("run_scripts.evaluate", *run, "--checkpoint=best")
    evaluations = json.loads((tmp_path / "evaluations.json").read_text())
    expected = json.loads((artefacts / f"scores/{task}/evaluations.json").read_text())
    if task == "classification":  # the row that set the threshold may be an alert or not: see without_ties
        scores = (
            {"alert_precision": 4 / 5, "alert_recall": 4 / 5},
            {"alert_precision": 5 / 6, "alert_recall": 1},
        )
        assert {name: evaluations["best"][name] for name in scores[0]} in scores
        evaluations["best"].update(scores[1])
    for name in [
        name for name in expected["best"] if name.startswith("best_") and name.endswith("_threshold")
    ]:
        # It was the last answered question's own logit, and is between that and the next one now.
        before, now = (scores["best"].pop(name) for scores in (expected, evaluations))
        assert before < now
    assert_alike(evaluations, expected)
    run_command("run_scripts.predict", *run)
    for expected in (artefacts / "predictions" / task).iterdir():
        found = (tmp_path / expected.name).read_text().splitlines()
        lines = expected.read_text().splitlines()
        if expected.suffix == ".json":
            found, lines = ["".join(found)], ["".join(lines)]
        if expected.suffix.startswith(".json"):
            found, lines = (list(map(json.loads, each)) for each in (found, lines))
            # Later versions have further names: label, value and option.
            found = [{name: row[name] for name in before} for row, before in zip(found, lines, strict=True)]
        else:
            found, lines = ([line.split() for line in each] for each in (found, lines))
            found, lines = ([[number(value) for value in line] for line in each] for each in (found, lines))
        if task == "classification":
            threshold = ModelCard.read(f"runs/{task}/best").thresholds["alert_threshold"]
            found, lines = without_ties(found, threshold), without_ties(lines, threshold)
        assert_alike(found, lines, expected.name)


def without_ties(rows: list, threshold: float) -> list:
    """Drops the alert of the row that set the threshold: the last bit of its probability decides it."""

    def is_tie(row):
        probability = row["probabilities"]["bad"] if isinstance(row, dict) else row[2]
        return not isinstance(probability, str) and np.isclose(probability, threshold, **CLOSE)

    [tie] = filter(is_tie, rows)
    tie = tie | {"alert": None} if isinstance(tie, dict) else tie[:-1]
    return [tie if is_tie(row) else row for row in rows]


def number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def answer(serve, inputs) -> dict:
    """Returns what is answered to inputs, as JSON has it."""
    outputs = serve(**{name: tf.constant(value) for name, value in inputs.items()})
    values = {name: value.numpy().tolist() for name, value in outputs.items()}
    return json.loads(json.dumps(values, default=bytes.decode))


def assert_same_answers(found: dict, artefacts: pathlib.Path, task: str):
    expected = json.loads((artefacts / "answers.json").read_text())[task]
    assert_alike({name: found[name] for name in expected}, expected)  # outputs may be added


@pytest.mark.parametrize("task", [*TASKS, pytest.param("pretraining", marks=pytest.mark.integration)])
def test_runs_are_served_with_the_same_answers(artefacts, task):
    if task == "pretraining":
        module = open_served(f"runs/{task}", seq_len=32, head="language_model").load()
    else:
        module = open_served(f"runs/{task}").load()
    assert_same_answers(answer(module.answer, make.REQUESTS[task]), artefacts, task)


def test_a_saved_model_answers_as_it_did(artefacts):
    served = tf.saved_model.load("served/classification/1").signatures["serving_default"]
    assert_same_answers(answer(served, make.REQUESTS["classification"]), artefacts, "classification")


@pytest.mark.integration
def test_an_export_by_todays_code_answers_the_same(artefacts, tmp_path):
    run_command("run_scripts.export", "--model_dir=runs/classification", f"--output_dir={tmp_path}/model")
    card = json.loads((tmp_path / "model/1/model.json").read_text())
    assert card["labels"] == ["bad", "good"] and card["settings"]["summary"] == "mean"
    assert card["origin"]["exported_from"] == "runs/classification/best/weights.safetensors"
    served = tf.saved_model.load(f"{tmp_path}/model/1").signatures["serving_default"]
    assert_same_answers(answer(served, make.REQUESTS["classification"]), artefacts, "classification")


@pytest.mark.parametrize(
    "folder", ["carded", "converted/ours", "converted/original", "converted/hugging_face"]
)
def test_converted_and_saved_folders_are_the_same_model(artefacts, folder):
    """But for the alert, which is a run's."""
    shutil.copy(make.TOKENIZER, folder)
    module = open_served(folder, head="classification", seq_len=24).load()
    assert XLNetTokenizer.from_pretrained(folder).cleaning == module.tokenizer.cleaning == CleaningConfig()
    found = answer(module.answer, make.REQUESTS["classification"])
    expected = json.loads((artefacts / "answers.json").read_text())["classification"]
    assert expected.pop("alert")
    assert_alike({name: found[name] for name in expected}, expected)


def test_weights_saved_without_a_card_are_read(artefacts):
    found, expected = (open_checkpoint(folder) for folder in ("saved", "runs/classification/best"))
    assert found.config == expected.config and found.arrays.shapes == expected.arrays.shapes
    for name in expected.arrays:
        np.testing.assert_array_equal(found.arrays[name], expected.arrays[name])
