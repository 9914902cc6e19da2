"""Uploads a model to the Hugging Face hub: weights, tokenizer, and a README.md with metrics and settings.

    python -m run_scripts.push --model_dir=runs/reviews --to=me/xlnet-reviews --license=apache-2.0 --dry_run
    python -m run_scripts.push --model_dir=runs/reviews --to=me/xlnet-reviews --license=apache-2.0

--dry_run shows the files, their sizes and the README.md, and does not contact the hub. Uploading needs a
token with write access (HF_TOKEN), and the extra: pip install "xlnet-tf[hub]". Paths of this machine are not
uploaded. Of a fine-tuned run, the best weights are uploaded, if they were kept. Differences between the
trained model and the uploaded format are printed and listed in the README.md.
"""

import dataclasses
from collections.abc import Sequence

from xlnet_tf import errors, hub
from xlnet_tf.flags import define_flags, from_flags, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class PushOptions:
    """What is uploaded, and what its README.md says."""

    model_dir: str = option("Folder of a run or of weights.")
    to: str = option("OWNER/NAME of the model on the hub.")
    format: str = option(
        "Format of the weights.", "hugging_face", choices=("hugging_face", "ours", "original")
    )
    private: bool = option("Make the new model private.", False)
    update: bool = option("Add a commit to a model that exists.", False)
    dry_run: bool = option("Show what would be uploaded, and contact nobody.", False)
    license: str = option("As the hub calls it: apache-2.0, mit, ...; empty: left out.", "")
    language: str = option("Code of the texts' language, as en; empty: left out.", "")
    dataset: str = option("Name of the training data, as glue or OWNER/NAME; empty: left out.", "")


def main(_: Sequence[str]) -> None:
    options = from_flags(PushOptions)
    hub.require(options.model_dir)
    from xlnet_tf import checkpoints  # which --help need not wait for
    from xlnet_tf.checkpoints import publishing

    publishing.check_name(options.to)
    facts = publishing.Facts(options.license, options.language, options.dataset)
    with publishing.prepared(options.model_dir, facts, options.format, options.to) as folder:
        for line in checkpoints.differences(checkpoints.open_checkpoint(options.model_dir), options.format):
            print(f"note: {line}")
        found = sorted(folder.iterdir())
        if not options.dry_run:
            size = sum(file.stat().length for file in found)
            print(
                f"uploading {len(found)} files, {size:,} bytes, to hf://{options.to}; if the hub stops "
                "answering, its library tries again for some minutes",
                flush=True,
            )
            print(publishing.push(folder, options.to, private=options.private, update=options.update))
            return
        print(f"to be uploaded to hf://{options.to}{' (private)' * options.private}:")
        for file in found:
            print(f"  {file.name:<28}{file.stat().length:>16,} bytes")
        print(f"\n{(folder / publishing.README).read_text()}\nnothing was uploaded: --dry_run")


if __name__ == "__main__":
    define_flags(PushOptions)
    errors.run(main, positional="model_dir")
