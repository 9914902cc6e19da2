"""Scores of entities, counted by sentence, are seqeval's of all sentences."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support
from seqeval.metrics.v1 import precision_recall_fscore_support as strict_scores
from seqeval.scheme import IOB2

from xlnet_tf.tasks.tagging.metrics import entity_counts, tag_scores

TAGS = st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"])
SENTENCES = st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=8), min_size=1, max_size=6)


@given(SENTENCES)
def test_scores_are_seqevals(sentences):
    gold, predicted = ([[pair[i] for pair in sentence] for sentence in sentences] for i in (0, 1))
    found = tag_scores(entity_counts(gold, predicted))
    options = {"average": "micro", "zero_division": 0}
    precision, recall, f1, _ = precision_recall_fscore_support(gold, predicted, **options)
    _, _, strict_f1, _ = strict_scores(gold, predicted, scheme=IOB2, **options)
    words = list(itertools.chain(*sentences))
    expected = {"f1": f1, "precision": precision, "recall": recall, "strict_f1": strict_f1}
    assert found == pytest.approx({**expected, "accuracy": sum(a == b for a, b in words) / len(words)})
