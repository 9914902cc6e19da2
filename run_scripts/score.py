r"""Scores the likelihood of texts: by a pretrained model, piece by piece, in any factorization order.

    python -m run_scripts.score --model_dir=runs/demo/model --text="A fine film ." --text="Fine a film ."

The sum over a text's pieces is its log-probability, whatever the order: --order=right_to_left, or random.
What --context holds is given: it stands before each text, and is not scored.
A text and its context have at most 32,768 pieces.

    python -m run_scripts.score --model_dir=runs/demo/model --data='corpus/*.txt.gz' --output_dir=scores

Scores a corpus into shards, by many processes or, with --runner=beam, on many machines. Each row gets its
log_probability and num_pieces. An interrupted job resumes; rows that cannot be scored are listed in
failed-scores-*.jsonl with the reason.
"""

import dataclasses
import math
from collections.abc import Sequence

from run_scripts.common import computing
from run_scripts.common.sharded import models
from run_scripts.common.sharded.options import ShardOptions, TextOptions
from xlnet_tf import errors, hub
from xlnet_tf.cli import command_line
from xlnet_tf.flags import define_flags, from_flags, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreOptions(TextOptions):
    """Which model scores which texts."""

    model_dir: str = option(hub.PRETRAINED_FLAG_HELP, group="model")
    text: Sequence[str] | None = option("Text to score.", None, repeated=True, group="data")


def describe(text: str, score) -> str:
    """Returns a text, its log-probability, and below them its pieces in the order of their prediction."""
    lines = [f"  {text}", f"    {score.total:.2f} nats, {len(score.pieces)} pieces"]
    if score.pieces:
        perplexity = math.exp(-score.total / len(score.pieces))
        lines[-1] += f", perplexity {perplexity:.1f}"
    for rank, number in enumerate(score.order, 1):
        log_probability, piece = score.log_probabilities[number], score.pieces[number]
        lines.append(f"    {rank:>3}. piece {number + 1:<4} {log_probability:8.2f}  {piece}")
    return "\n".join(lines)


def main(_: Sequence[str]) -> None:
    options, shards = from_flags(ScoreOptions), from_flags(ShardOptions)
    options.check(shards)
    hub.require(options.model_dir)
    scoring = from_flags(models.Scoring, path=options.model_dir)
    if not options.text:
        from run_scripts.common.sharded import job
        from xlnet_tf.serving.sources import weights_file

        job.run_texts("scores", scoring, options, weights_file(options.model_dir), shards.resolved())
        return
    computing.run_eagerly(options.model_dir)
    model = computing.load_language_model(options.model_dir, scoring.dtype)
    contexts = [scoring.context] * len(options.text)
    scores = model.score(options.text, contexts, order=scoring.order, seed=scoring.seed)
    for text, score in zip(options.text, scores, strict=True):
        print(describe(text, score))


if __name__ == "__main__":
    define_flags(ScoreOptions, models.Scoring, ShardOptions)
    command_line.require_one_of("text", "data", "tfds_name")
    errors.run(main)
