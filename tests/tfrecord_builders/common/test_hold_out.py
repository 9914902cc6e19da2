"""A dev split that is held out of train: by the text alone, so that equal texts are on the same side."""

import json

import pytest

from tests.helpers.records.builders import OWN, build
from xlnet_tf.errors import UserError
from xlnet_tf.records.passages import Passage

ROWS = [f"{a} {b}" for a in ("ka", "to", "mi", "ren") for b in ("sol", "du", "ve", "bor")]
MANY = {
    "race": [OWN | {"context": text} for text in ROWS for _ in range(2)],
    "ranking": "query\tpassage\trelevance\n" + "".join(f"{q}\tto\t1\n{q}\tmi\t0\n" for q in ROWS),
    "squad": [({"context": text, "question": "Ka?", "answer": text[:2]}) for text in ROWS],
    "tagging": [{"tokens": text.split(), "tags": ["B-X", "O"]} for text in ROWS],
}


def path_of(folder):
    return str(next(folder.glob("train.*")))


def texts_of(examples):
    """What decides the side of each example."""
    rows = list(examples.sidecar())
    if examples.task == "squad":
        return [passage.text for passage in Passage.read_all(examples.folder)]
    return [row["query"] if "query" in row else row["parts"][0]["text"] for row in rows]


@pytest.mark.parametrize("builder", MANY)
def test_dev_is_held_out_by_the_text_alone(builder, tmp_path, tokenizer_file):
    content = MANY[builder]
    if builder == "squad":
        path = tmp_path / "train.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in content))
        content = str(path)
    sets = build(builder, tmp_path, tokenizer_file, train=content, dev_fraction=0.3)
    assert list(sets) == ["train", "dev"] and 0 < sets["dev"].records < sets["train"].records
    (tmp_path / "all").mkdir()
    whole = build(builder, tmp_path / "all", tokenizer_file, train=path_of(tmp_path))
    assert sets["train"].records + sets["dev"].records == whole["train"].records
    if builder != "race":
        train, dev = (texts_of(sets[name]) for name in ("train", "dev"))
        assert not set(train) & set(dev) and set(train) | set(dev) == set(texts_of(whole["train"]))
    with pytest.raises(UserError, match="dev_fraction is for a train split without a dev split"):
        build(builder, tmp_path, tokenizer_file, train=path_of(tmp_path), dev=content, dev_fraction=0.3)
