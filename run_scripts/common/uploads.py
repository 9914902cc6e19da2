"""Uploads a model to the Hugging Face hub: weights, tokenizer, and a README.md with metrics and settings."""

import dataclasses

from xlnet_tf.flags import option

HUB = "hf://"


@dataclasses.dataclass(frozen=True, kw_only=True)
class UploadOptions:
    """How a model is uploaded, and the contents of its README.md."""

    private: bool = option("Make the uploaded model private.", False)
    update: bool = option("Upload to a model that exists, as another commit.", False)
    dry_run: bool = option("Show what would be uploaded, without contacting the hub.", False, group="output")
    license: str = option(
        "License for the hub, by its name there: apache-2.0, mit, ...; empty: left out.", ""
    )
    language: str = option("Language of the texts for the hub, by its code, such as en; empty: left out.", "")
    dataset: str = option(
        "Training data for the hub, by name, such as glue or OWNER/NAME; empty: left out.", ""
    )


def upload(source: str, name: str, target_format: str, options: UploadOptions) -> None:
    """Uploads a model to the hub as OWNER/NAME, or shows what would be uploaded."""
    from xlnet_tf import checkpoints  # which --help need not wait for
    from xlnet_tf.checkpoints import publishing

    publishing.check_name(name)
    facts = publishing.Facts(options.license, options.language, options.dataset)
    with publishing.prepared(source, facts, target_format, name) as folder:
        for line in checkpoints.differences(checkpoints.open_checkpoint(source), target_format):
            print(f"note: {line}")
        paths = sorted(folder.iterdir())
        if not options.dry_run:
            size = sum(path.stat().length for path in paths)
            print(
                f"uploading {len(paths)} files, {size:,} bytes, to {HUB}{name}; if the hub stops answering, "
                "its library tries again for some minutes",
                flush=True,
            )
            print(publishing.push(folder, name, private=options.private, update=options.update))
            return
        print(f"to be uploaded to {HUB}{name}{' (private)' * options.private}:")
        for path in paths:
            print(f"  {path.name:<28}{path.stat().length:>16,} bytes")
        print(f"\n{(folder / publishing.README).read_text()}\nnothing was uploaded: --dry_run")
