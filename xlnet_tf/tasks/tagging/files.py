"""Converts tags of tokens back to sentences, words and entities, and writes them to files."""

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from seqeval.metrics.sequence_labeling import get_entities

from xlnet_tf import files
from xlnet_tf.records.examples import ExampleSet
from xlnet_tf.tasks.scoring import Mistake
from xlnet_tf.text.words import mark_entities

TSV_FILE = "predictions.tsv"
JSONL_FILE = "predictions.jsonl"
_TABLE_SIGNS = re.compile(r"[\t\r\n]")


@dataclasses.dataclass
class TaggedSentence:
    """A sentence, [begin, end) of its words, and their true tags, if known, and predicted ones."""

    id: str
    text: str
    offsets: list[Sequence[int]]
    gold: list[str] | None
    predicted: list[str]
    of_entities: bool = True

    @property
    def words(self) -> list[str]:
        return [self.text[begin:end] for begin, end in self.offsets]


def tagged_sentences(examples: ExampleSet, predictions: Mapping[str, np.ndarray]) -> list[TaggedSentence]:
    """Joins windows to sentences that have every word of the input once."""
    labels = examples.settings["labels"]
    of_entities = mark_entities(labels)
    sentences = []
    for tags, example in zip(predictions["tags"], examples.sidecar(), strict=True):
        for part in example["parts"]:
            predicted = [labels[tag] for tag in tags[part["positions"]]]
            if not part["first"]:
                known = part["id"], part["text"], part["offsets"], part["tags"]
                sentence = TaggedSentence(*known, predicted, of_entities)
                sentences.append(sentence)
                continue
            sentence = sentences[-1]
            sentence.offsets += part["offsets"]
            sentence.predicted += predicted
            if sentence.gold is not None:
                sentence.gold += part["tags"]
    return sentences


def entities(sentence: TaggedSentence, tags: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the entities in given tags, as conlleval reads them, or each word's tag that marks none."""
    result = []
    of_words = [(tag, word, word) for word, tag in enumerate(tags)]
    for label, first, last in get_entities(list(tags)) if sentence.of_entities else of_words:
        start, end = sentence.offsets[first][0], sentence.offsets[last][1]
        result.append({"start": start, "end": end, "label": label, "text": sentence.text[start:end]})
    return result


def write_files(sentences: Iterable[TaggedSentence], folder: epath.PathLike) -> list[str]:
    """Writes predictions.tsv and predictions.jsonl.

    The first has one word a line with its true tag (if known) and the predicted one, and a blank line after
    each sentence, as conlleval reads it (`conlleval -d '\\t'`). The second has id, text and entities of each
    sentence, and the true entities if they are known.
    """
    folder = files.make_folder(folder)
    with files.replacing(folder / TSV_FILE) as tsv, files.replacing(folder / JSONL_FILE) as jsonl:
        for sentence in sentences:
            words = [_TABLE_SIGNS.sub(" ", word) for word in sentence.words]
            columns = [words, sentence.gold, sentence.predicted]
            rows = zip(*[column for column in columns if column is not None], strict=True)
            tsv.write("".join("\t".join(row) + "\n" for row in rows) + "\n")
            line = {"id": sentence.id, "text": sentence.text}
            line["entities"] = entities(sentence, sentence.predicted)
            if sentence.gold is not None:
                line["true_entities"] = entities(sentence, sentence.gold)
            jsonl.write(json.dumps(line, ensure_ascii=False) + "\n")
    return [str(folder / TSV_FILE), str(folder / JSONL_FILE)]


def mistakes(sentences: Iterable[TaggedSentence]) -> Iterator[Mistake]:
    """Yields sentences with wrong tags, those with the most first, and these tags."""

    def wrong(sentence: TaggedSentence) -> list[int]:
        pairs = zip(sentence.gold or (), sentence.predicted)
        return [word for word, (gold, predicted) in enumerate(pairs) if gold != predicted]

    for sentence in sorted(sentences, key=lambda sentence: -len(wrong(sentence))):
        if not (words := wrong(sentence)):
            return
        spelled = (
            ", ".join(f"{sentence.words[word]} {tags[word]}" for word in words)
            for tags in (sentence.gold or (), sentence.predicted)
        )
        yield Mistake(sentence.text, *spelled)
