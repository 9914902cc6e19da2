r"""Compiles a training step or a served model for a TPU: for one core, on a machine that has none.

    python -m run_scripts.tpu_compile --preset=large --dtype=bfloat16 --topology=v3 --batch_per_core=4
    python -m run_scripts.tpu_compile --config_file=squad_large \
        --task=question_answering --dtype=bfloat16 --topology=v3,v5e --find_max_batch
    python -m run_scripts.tpu_compile --export=served/reviews/1 --topology=v5e --batch_per_core=8

It says whether the program compiles and what it takes: memory, floating-point operations, bytes, and the
compiler's estimate of the time. The program is the trainer's own step: forward and backward pass, clipping,
update, memory and metrics, with weights and optimizer state updated in place. Data are synthetic, of given
sizes; --data takes the lengths and labels of a set of records or examples. Settings come from the task's
defaults, --config_file, the flags, and --params_override. Input and sums over the cores are not part of it. A
run with dev data keeps a second memory on each core, of the evaluation's rows: --dry_run of
xlnet-tf pretrain counts it, and a smaller --dev_batch_size makes it less.

Of a SavedModel it compiles the signature `tokens`, what the model computes of token ids: its other signatures
read texts, which a host makes tokens of; those that write texts also choose shapes as they go. The graph is
compiled as it was exported: scores are shifted by position, not rotated as in a step traced for a TPU.

A flag without effect on what is asked for is refused. --output is written after each topology. The exit
status is 1 if nothing compiles.

The compiler is an extra: pip install "xlnet-tf[tpu-compile]"

--save_hlo=FILE compiles nothing: it writes a pretraining step for benchmarks/hlo.py to run elsewhere, for
example on a GPU (--hardware=gpu).
"""

import sys
from collections.abc import Sequence

from absl import flags
from etils import epath

from run_scripts.tpu_compile.plan import check_flags, define_flags, from_flags, run, save_hlo
from xlnet_tf import errors
from xlnet_tf.errors import UserError
from xlnet_tf.records.manifest import FILE_NAME, Manifest
from xlnet_tf.tpu.compilation import NotCompiled


def main(_: Sequence[str]) -> None:
    options = from_flags(flags.FLAGS)
    check_flags(options)
    if options.data and not epath.Path(options.data, FILE_NAME).exists():
        Manifest.load(options.data)  # says what is missing, before TensorFlow is loaded
    if options.export and not epath.Path(options.export, "saved_model.pb").exists():
        raise UserError(
            f"--export: {options.export} has no saved_model.pb; expected a version that `xlnet-tf export` "
            "has written, such as served/reviews/1"
        )
    if options.save_hlo:
        save_hlo(options)
        return
    for results in run(options, sys.argv[1:]):
        if options.output:
            results.save(options.output, sys.argv[1:])
    print(results.table())
    if options.output:
        print(f"\n{options.output}")
    if all(isinstance(row.outcome, NotCompiled) for row in results.rows):
        raise UserError(
            "nothing compiles, for the reasons above. What is too large needs fewer rows (--batch_per_core; "
            "--find_max_batch searches them), another --topology, or, if it is a training step, "
            "--recompute=cheap or --recompute"
        )


if __name__ == "__main__":
    define_flags()
    errors.run(main)
