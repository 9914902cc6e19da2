"""Scores of tagged sentences: entities by seqeval, words by themselves."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import sklearn.metrics as sk
from seqeval.metrics import classification_report
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB2, Entities

Tags = Sequence[Sequence[str]]  # of all sentences, in BIO


def entity_counts(gold: Tags, predicted: Tags) -> dict[str, np.ndarray]:
    """Counts true, predicted and common entities of each sentence, [sentences, 3], as conlleval reads them.

    `strict_entities` begin with B-X; `words` counts words twice, and those whose tag is right.
    """
    names = ("entities", "strict_entities", "words")
    rows = []
    for true, found in zip(gold, predicted, strict=True):
        lenient = (set(get_entities(list(tags))) for tags in (true, found))
        strict = (_strict_entities(tags) for tags in (true, found))
        words = (set(enumerate(tags)) for tags in (true, found))
        rows.append([(len(a), len(b), len(a & b)) for a, b in (lenient, strict, words)])
    return dict(zip(names, np.array(rows, int).reshape(-1, 3, 3).swapaxes(0, 1), strict=True))


def word_counts(gold: Tags, predicted: Tags) -> dict[str, np.ndarray]:
    """Counts the words of each sentence, twice, and those whose tag is right: `words`, int [sentences, 3]."""
    rows = [(len(a), len(b), sum(map(str.__eq__, a, b))) for a, b in zip(gold, predicted, strict=True)]
    return {"words": np.array(rows, int).reshape(-1, 3)}


def tag_scores(counts: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Scores `entity_counts`, from 0 to 1; an entity is right if its type and both of its borders are.

    strict_f1 is of strict entities alone, accuracy, all that `word_counts` give, the share of right tags.
    """
    accuracy = {"accuracy": _rates(counts["words"])[1]}
    if "entities" not in counts:
        return accuracy
    precision, recall, f1 = _rates(counts["entities"])
    strict_f1 = _rates(counts["strict_entities"])[2]
    return {"f1": f1, "precision": precision, "recall": recall, "strict_f1": strict_f1, **accuracy}


def tag_table(gold: Tags, predicted: Tags) -> str:
    """Returns a table for people: precision, recall, F1 and number of the words of each tag."""
    true, found = (list(itertools.chain(*tags)) for tags in (gold, predicted))
    return sk.classification_report(true, found, digits=4, zero_division=0).rstrip()


def _rates(counts: np.ndarray) -> tuple[float, float, float]:
    """Returns precision, recall and F1 of counts [sentences, 3]."""
    true, predicted, both = (int(count) for count in counts.sum(axis=0))
    precision, recall = both / max(predicted, 1), both / max(true, 1)
    return precision, recall, 2 * precision * recall / (precision + recall) if both else 0.0


def _strict_entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    [sentence] = Entities([list(tags)], IOB2).entities
    return {(entity.tag, entity.start, entity.end) for entity in sentence}


def type_table(gold: Tags, predicted: Tags) -> str:
    """Returns a table for people: precision, recall, F1 and number of the entities of each type."""
    if not any(tag != "O" for tag in itertools.chain(*gold, *predicted)):
        return "no entities, neither true nor predicted ones"
    return classification_report(gold, predicted, digits=4, zero_division=0).rstrip()
