"""Measures generation on the CPU: next to Hugging Face's; every figure comes from this one run.

    python -m run_scripts.benchmark_generation --peer_python=PYTHON --output=runs/benchmark_generation.json

  ours           prompts continued by the likeliest piece, with cached content states, as a TensorFlow graph.
  ours bfloat16  the same model with activations in bfloat16, where the processor computes with it.
  ours xla       ours compiled by XLA, if --xla asks for it.
  hugging_face   XLNetLMHeadModel.generate in PyTorch, with our weights, in a process of --peer_python, a
                 Python that has torch and transformers; left out without. It keeps hidden states, too, but
                 projects all of them to keys and values again for each token.

They run in turn, once per repetition, so that a disturbance hits all alike, with as many threads as there are
cores. A run reads the prompts and writes all tokens. The weights are random. That both compute the same is
checked by the first tokens; later ones may differ: Hugging Face lets the last two tokens see each other, and
random weights make many pieces nearly as likely as the likeliest, among which bfloat16 chooses otherwise.
"""

from collections.abc import Sequence

from absl import flags

from run_scripts.benchmark import timing
from run_scripts.benchmark_generation.measure import measure, table
from xlnet_tf import errors


def main(_: Sequence[str]) -> None:
    values = flags.FLAGS
    where = timing.machine()
    report = {"machine": where} | measure(
        timing.config_of_flags(),
        batches=values.batch_size,
        prompt_lens=values.prompt_len,
        new_tokens=values.new_tokens,
        repeats=values.repeats,
        bfloat16=bool(where["bfloat16"]),
        xla=values.xla,
        peer_python=values.peer_python,
    )
    timing.write(report, table(report), values.output)


if __name__ == "__main__":
    timing.define_flags(repeats=5)
    flags.DEFINE_multi_integer(
        "batch_size", [1, 8], "prompts continued together; may be repeated", lower_bound=1
    )
    flags.DEFINE_multi_integer("prompt_len", [128], "pieces of a prompt", lower_bound=1)
    flags.DEFINE_integer("new_tokens", 64, "pieces to write after each", lower_bound=1)
    flags.DEFINE_bool("xla", False, "whether to measure a graph compiled by XLA, too")
    errors.run(main)
