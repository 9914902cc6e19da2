"""Builds examples of two texts each, of which the one with a certain word is preferred."""

import numpy as np

from xlnet_tf.records.examples import ExampleSet, ExampleWriter
from xlnet_tf.records.layout import Column
from xlnet_tf.text.packing import pack

T = 12
LETTERS = ("a", "b")


def build(folder, tokenizer, count, seed=0) -> list[dict]:
    """Writes a set of `count` examples and returns their texts: id, a, b and which is preferred."""
    rng = np.random.default_rng(seed)
    rows = []
    with ExampleWriter(
        folder,
        task="comparison",  # the earlier name of the task
        split=folder.name,
        tokenizer=tokenizer,
        seq_len=T,
        sequences=2,
        columns=[Column("label", "int32", None)],
        settings={"answered": True},
    ) as writer:
        for number in range(count):
            label = int(rng.integers(2))
            words = [list(rng.choice(["ba", "ne", "tor"], 3)) for _ in LETTERS]
            words[label][rng.integers(3)] = "1999,"
            texts = [" ".join(text) for text in words]
            packed = [pack(tokenizer.encode(text)[: T - 2], seq_len=T) for text in texts]
            columns = {
                name: np.concatenate([getattr(part, name) for part in packed])
                for name in ("input_ids", "segment_ids")
            }
            rows.append({"id": str(number), **dict(zip(LETTERS, texts)), "preferred": LETTERS[label]})
            writer.write({**columns, "label": label}, {"id": str(number)})
    assert ExampleSet.load(folder).records == count
    return rows
