r"""Adapts a pretrained model to the texts of a domain; measures what that gains and costs.

    python -m run_scripts.adapt --init_checkpoint=runs/general --input=reviews.csv \
        --general_input=speeches.txt --replay=0.2 --task_data=records/reviews --model_dir=runs/adapted

Continues pretraining with the checkpoint's own tokenizer, at a low learning rate, and keeps the weights with
the lowest loss on held-out texts of the domain. MODEL_DIR can be used wherever a checkpoint can. With
--general_input it also measures what is forgotten, and stops past --max_general_rise. With --task_data it
fine-tunes the weights before and after with the same seeds, and reports both, whichever way they fall; texts
of the task's dev and test sets are left out of what is trained on. The report is printed, and written as
report.json. The same command, started again, resumes where it stopped.
"""

import dataclasses
from collections.abc import Sequence

from absl import flags
from etils import epath

from run_scripts import pretrain
from run_scripts.adapt import options
from xlnet_tf import errors, folders, hub
from xlnet_tf.flags import Setting
from xlnet_tf.records.examples import ExampleSet

_LEFT_OUT = ("train_data", "dev_data", "init_checkpoint", "preset", "model_config", "next_sentence_weight")
_FILLED_IN = ("train_steps", "checkpoint_interval", "eval_interval")  # 0: see the recipe
SETTINGS = (
    *(
        dataclasses.replace(setting, minimum=0) if setting.flag in _FILLED_IN else setting
        for setting in pretrain.SETTINGS
        if setting.flag not in _LEFT_OUT
    ),
    Setting("max_general_rise", "task.max_general_rise", float,
            "Rise of the loss on general text, in nats, after which the run ends; 0: it never does.", 0),
)  # fmt: skip


def main(_: Sequence[str]) -> None:
    run, texts, adapt = options.from_flags(SETTINGS, flags.FLAGS)
    folders.claim(run.model_dir, folders.ADAPTATION, flag="--model_dir")
    hub.require(adapt.init_checkpoint, "--init_checkpoint: ")
    if not (epath.Path(run.model_dir) / "adaptation.json").exists():  # else the texts are not read
        texts.check()
    if adapt.task_data:
        ExampleSet.load(f"{adapt.task_data}/train")

    # TensorFlow is loaded once the paths are known to be good.
    from run_scripts.adapt.adaptation import REPORT, Adaptation

    adaptation = Adaptation(run, texts, adapt, SETTINGS)
    print(adaptation.adapt(*adaptation.prepare()))
    print(f"\nwritten to {adaptation.folder}: {REPORT}")


if __name__ == "__main__":
    options.define_flags(SETTINGS)
    errors.run(main)
