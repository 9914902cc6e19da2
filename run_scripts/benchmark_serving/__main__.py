"""Measures a served classifier on the CPU: next to its peers; every figure comes from this one run.

    python -m run_scripts.benchmark_serving --peer_python=PYTHON --output=runs/benchmark_serving.json

  ours           SavedModels as run_scripts.export writes them, with float32 and bfloat16 weights.
  model_garden   Model Garden's XLNetClassifier as a SavedModel.
  hugging_face   XLNetForSequenceClassification in PyTorch, with our weights, in a process of --peer_python, a
                 Python that has torch and transformers; left out without.
  products       the matrix products of our forward pass in float32 and nothing else. The last layer computes
                 one token of a text, from which the classes come.

All read the same tokens; SavedModels are loaded with tf.saved_model.load and asked for signature `tokens`.
They run in turn, once per repetition, so that a disturbance hits all alike, with as many threads as there are
cores. The weights are random. That our model and Hugging Face's compute the same is checked by their answers.
"""

from collections.abc import Sequence

from absl import flags

from run_scripts.benchmark import timing
from run_scripts.benchmark.timing import DEMO_TOKENIZER, existing
from run_scripts.benchmark_serving.measure import measure, table
from xlnet_tf import errors
from xlnet_tf.text.tokenizer import XLNetTokenizer


def main(_: Sequence[str]) -> None:
    values = flags.FLAGS
    tokenizer = XLNetTokenizer(existing(values.tokenizer, DEMO_TOKENIZER, "tokenizer"))
    report = {"machine": timing.machine()} | measure(
        timing.config_of_flags(),
        tokenizer,
        batches=values.batch_size,
        seq_len=values.seq_len,
        repeats=values.repeats,
        peer_python=values.peer_python,
    )
    timing.write(report, table(report), values.output)


if __name__ == "__main__":
    timing.define_flags(repeats=15)
    flags.DEFINE_string("tokenizer", None, f"a SentencePiece model. Default: the demo's, {DEMO_TOKENIZER}")
    flags.DEFINE_multi_integer("batch_size", [1, 8], "rows of a request", lower_bound=1)
    flags.DEFINE_integer("seq_len", 128, "tokens of a text", lower_bound=5)
    errors.run(main)
