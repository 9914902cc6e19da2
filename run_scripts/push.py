"""Uploads a model to the Hugging Face hub: weights, tokenizer, and a README.md with metrics and settings.

    python -m run_scripts.push --model_dir=runs/reviews --to=me/xlnet-reviews --license=apache-2.0 --dry_run
    python -m run_scripts.push --model_dir=runs/reviews --to=me/xlnet-reviews --license=apache-2.0

--dry_run shows the files, their sizes and the README.md, and does not contact the hub. Uploading needs a
token with write access (HF_TOKEN), and the extra: pip install "xlnet-tf[hub]". Paths of this machine are not
uploaded. Of a fine-tuned run, the best weights are uploaded, if they were kept. Differences between the
trained model and the uploaded format are printed and listed in the README.md.
"""

from collections.abc import Sequence

from absl import flags

from xlnet_tf import errors, hub

FLAGS = flags.FLAGS


def main(_: Sequence[str]) -> None:
    hub.require(FLAGS.model_dir)
    from xlnet_tf import checkpoints  # which --help need not wait for
    from xlnet_tf.checkpoints import publishing

    publishing.check_name(FLAGS.to)
    facts = publishing.Facts(FLAGS.license, FLAGS.language, FLAGS.dataset)
    with publishing.prepared(FLAGS.model_dir, facts, FLAGS.format, FLAGS.to) as folder:
        for line in checkpoints.differences(checkpoints.open_checkpoint(FLAGS.model_dir), FLAGS.format):
            print(f"note: {line}")
        found = sorted(folder.iterdir())
        if not FLAGS.dry_run:
            size = sum(file.stat().length for file in found)
            print(
                f"uploading {len(found)} files, {size:,} bytes, to hf://{FLAGS.to}; if the hub stops "
                "answering, its library tries again for some minutes",
                flush=True,
            )
            print(publishing.push(folder, FLAGS.to, private=FLAGS.private, update=FLAGS.update))
            return
        print(f"to be uploaded to hf://{FLAGS.to}{' (private)' * FLAGS.private}:")
        for file in found:
            print(f"  {file.name:<28}{file.stat().length:>16,} bytes")
        print(f"\n{(folder / publishing.README).read_text()}\nnothing was uploaded: --dry_run")


if __name__ == "__main__":
    flags.DEFINE_string("model_dir", None, "Folder of a run or of weights.", required=True)
    flags.DEFINE_string("to", None, "OWNER/NAME of the model on the hub.", required=True)
    flags.DEFINE_enum(
        "format", "hugging_face", ["hugging_face", "ours", "original"], "Format of the weights."
    )
    flags.DEFINE_bool("private", False, "Make the new model private.")
    flags.DEFINE_bool("update", False, "Add a commit to a model that exists.")
    flags.DEFINE_bool("dry_run", False, "Show what would be uploaded, and contact nobody.")
    flags.DEFINE_string("license", "", "As the hub calls it: apache-2.0, mit, ...; empty: left out.")
    flags.DEFINE_string("language", "", "Code of the texts' language, as en; empty: left out.")
    flags.DEFINE_string("dataset", "", "Name of the training data, as glue or OWNER/NAME; empty: left out.")
    errors.run(main, positional="model_dir")
