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

from xlnet_tf import errors, files, hub
from xlnet_tf.flags import define_flags, from_flags, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """What is checked, and how the outcome is printed."""

    model_dir: str = option("Name or folder of pretrained weights.")
    text_file: str | None = option(
        "Paragraph in the model's language. Default: a bundled one, in English or Chinese.", None
    )
    json: bool = option("Print json.", False)


def main(_: Sequence[str]) -> None:
    options = from_flags(VerifyOptions)
    hub.require(options.model_dir)
    from xlnet_tf.verification import verify_pretrained  # which --help need not wait for

    text = files.read_text(options.text_file) if options.text_file else None
    found = verify_pretrained(options.model_dir, text)
    as_json = {"passed": found.passed, **dataclasses.asdict(found)}
    print(json.dumps(as_json, indent=1) if options.json else found.table())
    sys.exit(int(not found.passed))


if __name__ == "__main__":
    define_flags(VerifyOptions)
    errors.run(main, positional="model_dir")
