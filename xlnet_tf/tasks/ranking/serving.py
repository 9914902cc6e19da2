"""SavedModels that rank passages or replies for a query."""

import tensorflow as tf

from xlnet_tf.serving.answers.signatures import LOWEST
from xlnet_tf.serving.graph.exported_model import CandidatesModule
from xlnet_tf.serving.graph.inputs import lists
from xlnet_tf.tasks.ranking.answering import RankingAnswers
from xlnet_tf.text.graph.packing import first_pieces


class RankingModule(RankingAnswers, CandidatesModule):
    """Scores of the candidates for a query.

    Signatures: serving_default (query [B], candidates [B, C]; C may differ between requests) and examples
        give
        scores [B, C] float32; the higher, the better;
        order [B, C] int32, the numbers of the candidates, best first.
        Of tf.Examples with fewer candidates than others, the rest has the lowest score there is, and the
        order ends with -1.
      tokens: sequences of single candidates; gives scores [B].
    """

    SCORES = "scores"

    def serve(self, query, candidates):
        candidates, is_candidate = lists(candidates)
        rows, count = tf.unstack(tf.shape(candidates))
        query_ids = first_pieces(self.texts.encode(query), self.max_query_len)
        query_ids = tf.gather(query_ids, tf.repeat(tf.range(rows), count))
        passage_ids = self.texts.encode(tf.reshape(candidates, [-1]))
        passage_ids = first_pieces(passage_ids, self.seq_len - 3 - query_ids.row_lengths())
        scores = tf.reshape(self.run(self.pack(query_ids, passage_ids)), [rows, count])
        scores = tf.where(is_candidate, scores, LOWEST)
        order = tf.argsort(scores, direction="DESCENDING", stable=True)
        return {"scores": scores, "order": tf.where(is_candidate, order, -1)}  # the others come last
