"""Ranking: passages, answers or replies for a query (WikiQA, MS MARCO, customer support)."""

import dataclasses
from typing import Any

import tensorflow as tf

from xlnet_tf.errors import UserError
from xlnet_tf.models.multiple_choice import XLNetRanker
from xlnet_tf.records.layout import Column
from xlnet_tf.task_registry import Sizes
from xlnet_tf.tasks.finetuning import FinetuningTask, register
from xlnet_tf.tasks.model_config import SummaryModelConfig
from xlnet_tf.tasks.ranking import losses as ranking_losses
from xlnet_tf.tasks.ranking.files import mistakes, ranked_queries, write_files
from xlnet_tf.tasks.ranking.metrics import mean_metrics, query_metrics
from xlnet_tf.tasks.scoring import is_constant, row_weights
from xlnet_tf.tasks.settings import FinetuningConfig
from xlnet_tf.training.task import Ratio

EXPERIMENT = "xlnet/ranking"


@dataclasses.dataclass
class RankingConfig(FinetuningConfig):
    """Settings of ranking; for the loss see losses.py."""

    model: SummaryModelConfig = dataclasses.field(default_factory=SummaryModelConfig)
    loss: str = "pairwise"


@register(EXPERIMENT, RankingConfig)
class RankingTask(FinetuningTask):
    """Scores each candidate by itself; the scores of a query's candidates rank them."""

    TASK = "ranking"
    BEST_METRIC = "map"
    SETTINGS = {"relevant_from": int, "max_query_len": int, "judged": bool}
    ANSWERED = "judged"
    MUST_AGREE = ("relevant_from",)

    def build_head(self, encoder):
        settings = self.task_config
        if settings.loss not in ranking_losses.LOSSES:
            raise UserError(
                f"task.loss is {settings.loss!r}, expected one of {', '.join(ranking_losses.LOSSES)}"
            )
        return XLNetRanker(encoder, self.example_set.sequences, **settings.model.head_options())

    def build_metrics(self, training: bool = True):
        return [Ratio("loss"), Ratio("pair_accuracy")]

    def counts(self, features):
        return {"loss": self._loss(tf.zeros_like(features["relevance"], tf.float32), features)[1]}

    def sums(self, features, outputs):
        pairs = ranking_losses.pairs(_relevance(features))
        hits = pairs * (tf.sign(ranking_losses.differences(outputs)) + 1) / 2  # a tie is half a hit
        return {
            "loss": self._loss(outputs, features),
            "pair_accuracy": (tf.reduce_sum(hits), tf.reduce_sum(pairs)),
        }

    def _loss(self, logits: tf.Tensor, features) -> ranking_losses.SumAndCount:
        loss = ranking_losses.LOSSES[self.task_config.loss]
        return loss(logits, _relevance(features), self.example_set.settings["relevant_from"])

    def predictions(self, features, outputs):
        return {"score": outputs, "relevance": features["relevance"]}

    def has_collapsed(self, examples, predictions):
        """Compares the candidates of each query: those of others are never ranked with them."""
        scores = [query.judged().scores for query in _queries(examples, predictions)]
        several = [values for values in scores if len(values) > 1]
        return bool(several) and all(is_constant(values, axis=0) for values in several)

    def units(self, examples, predictions):
        queries = [query.judged() for query in _queries(examples, predictions)]
        return query_metrics(queries, examples.settings["relevant_from"])

    def score_units(self, units):
        return mean_metrics(units)

    def find_mistakes(self, examples, predictions):
        return mistakes(_queries(examples, predictions), examples.settings["relevant_from"])

    def write_predictions(self, examples, predictions, folder):
        return write_files(_queries(examples, predictions), folder)


def _relevance(features) -> tf.Tensor:
    """Returns the relevance [B, K], -1 in all slots of rows that fill up a batch."""
    return tf.where(row_weights(features)[:, None] > 0, tf.cast(features["relevance"], tf.int32), -1)


def _queries(examples, predictions):
    return ranked_queries(examples.sidecar(), predictions["score"], predictions["relevance"])


def synthetic(sizes: Sizes) -> tuple[list[Column], dict[str, Any]]:
    """Returns the columns and settings of queries without content."""
    settings = {"relevant_from": 1, "max_query_len": sizes.seq_len // 2, "judged": True}
    return [Column("relevance", "int32", sizes.sequences)], settings
