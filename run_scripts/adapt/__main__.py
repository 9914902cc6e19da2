r"""Adapts a pretrained model to the texts of a domain, and measures what that gains and costs.

    python -m run_scripts.adapt --init_checkpoint=runs/general --input=reviews.csv \
        --general_input=speeches.txt --replay=0.2 --task_data=records/reviews --model_dir=runs/adapted

Continues pretraining with the checkpoint's own tokenizer, at a low learning rate, and keeps the weights with
the lowest loss on held-out texts of the domain. MODEL_DIR can be used wherever a checkpoint can. With
--general_input it also measures what is forgotten, and stops past --max_general_rise. With --task_data it
fine-tunes the weights before and after with the same seeds, and reports both, whichever way they fall; texts
of the task's dev and test sets are left out of what is trained on. The report is printed, and written as
report.md, report.json and index.html. The same command, started again, resumes where it stopped.
"""

from collections.abc import Sequence

from absl import flags

from run_scripts.adapt.adaptation import SETTINGS, Adaptation
from run_scripts.adapt.texts import TextOptions
from run_scripts.common import experiment
from xlnet_tf import errors, folders, hub
from xlnet_tf import flags as options


def define_flags() -> None:
    experiment.define_flags(SETTINGS)
    options.define_flags(TextOptions)
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "Weights to adapt: a folder (ours, the original's, Hugging Face's) or hf://OWNER/NAME.",
        required=True,
    )
    flags.DEFINE_float("epochs", 1.0, "Passes over the texts, if train_steps is 0.", 0.0001, 1_000_000)
    flags.DEFINE_integer(
        "seq_len", None, "Tokens of a segment. Default: as the checkpoint's records, or 512.", 7
    )
    flags.DEFINE_string(
        "sentence_split",
        None,
        "Language code (en, de, ...) if the texts have paragraphs on their lines. Default: as the "
        "checkpoint's records, or none.",
    )
    flags.DEFINE_bool("keep_optimizer", True, "Take over the optimizer's moments, if they were kept.")
    flags.DEFINE_string(
        "task_data", "", "Folder of built examples, to fine-tune the weights before and after on."
    )
    flags.DEFINE_multi_string(
        "task_config", [], "Settings of that fine-tuning: a recipe, a yaml file, or NAME=VALUE,NAME=VALUE."
    )
    flags.DEFINE_integer("num_seeds", 3, "Number of seeds of that fine-tuning.", 1, 100)


def main(_: Sequence[str]) -> None:
    folders.claim(flags.FLAGS.model_dir, folders.ADAPTATION, flag="--model_dir")
    hub.require(flags.FLAGS.init_checkpoint, "--init_checkpoint: ")
    adaptation = Adaptation(flags.FLAGS)
    outcome = adaptation.adapt(*adaptation.prepare())
    print("\n".join(outcome.lines()))
    print(f"\nwritten to {adaptation.folder}: {', '.join(outcome.write())}")


if __name__ == "__main__":
    define_flags()
    errors.run(main)
