"""Checks pretrained weights: whether they are whole, trained, and those of their release.

    python -m run_scripts.verify_pretrained xlnet/xlnet-base-cased
    python -m run_scripts.verify_pretrained runs/demo/model

It compares variables, their values, the tokenizer, published numbers, and the loss of a paragraph with what
is expected; docs/get-weights.md explains each check. The exit status is 1 if a check fails.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence

from absl import flags

from xlnet_tf import errors, files, hub

FLAGS = flags.FLAGS


def main(_: Sequence[str]) -> None:
    hub.require(FLAGS.model_dir)
    from xlnet_tf.verification import verify_pretrained  # which --help need not wait for

    text = files.read_text(FLAGS.text_file) if FLAGS.text_file else None
    found = verify_pretrained(FLAGS.model_dir, text)
    as_json = {"passed": found.passed, **dataclasses.asdict(found)}
    print(json.dumps(as_json, indent=1) if FLAGS.json else found.table())
    sys.exit(int(not found.passed))


if __name__ == "__main__":
    flags.DEFINE_string("model_dir", None, "Name or folder of pretrained weights.", required=True)
    flags.DEFINE_string(
        "text_file", None, "Paragraph in the model's language. Default: a bundled one, in English or Chinese."
    )
    flags.DEFINE_bool("json", False, "Print json.")
    errors.run(main, positional="model_dir")
