"""Scores of tagged sentences: entities by seqeval, words by themselves."""

import itertools
from collections.abc import Sequence

from seqeval.metrics import classification_report
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support
from seqeval.metrics.v1 import precision_recall_fscore_support as strict_scores
from seqeval.scheme import IOB2

Tags = Sequence[Sequence[str]]  # of all sentences, in BIO


def entity_scores(gold: Tags, predicted: Tags) -> dict[str, float]:
    """Scores entities: one is right if its type and both of its borders are.

    Args:
        gold: the true tags.
        predicted: as many.

    Returns:
        f1, precision, recall, as CoNLL's script conlleval counts: a predicted I-X that no entity of type X
        goes before begins one; strict_f1, which takes only entities that begin with B-X; accuracy, part of
        the words whose tag is right. All from 0 to 1.
    """
    precision, recall, f1, _ = precision_recall_fscore_support(
        gold, predicted, average="micro", zero_division=0
    )
    _, _, strict_f1, _ = strict_scores(gold, predicted, average="micro", scheme=IOB2, zero_division=0)
    pairs = list(zip(itertools.chain(*gold), itertools.chain(*predicted), strict=True))
    return {
        "f1": float(f1),
        "precision": float(precision),
        "recall": float(recall),
        "strict_f1": float(strict_f1),
        "accuracy": sum(true == found for true, found in pairs) / max(len(pairs), 1),
    }


def type_table(gold: Tags, predicted: Tags) -> str:
    """Returns a table for people: precision, recall, F1 and number of the entities of each type."""
    if not any(tag != "O" for tag in itertools.chain(*gold, *predicted)):
        return "no entities, neither true nor predicted ones"
    return classification_report(gold, predicted, digits=4, zero_division=0).rstrip()
