"""Options of `run_scripts.predict`."""

import dataclasses
from collections.abc import Sequence

from run_scripts.common import training_flags
from xlnet_tf.errors import UserError
from xlnet_tf.flags import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """The model, its inputs, and where its answers go."""

    model_dir: str | None = option(
        "The fine-tuned model: folder of a run, of save_pretrained or, for texts, of export, a .keras file "
        "or hf://OWNER/NAME; needed without --server.",
        None,
    )
    checkpoint: str = option("Weights: best, last, or as ckpt-100; empty: best if kept, else last.", "")
    data: str | None = option(
        "Folder of a set of examples that a builder wrote, or a file of texts: csv, tsv "
        "or JSON lines, with the model's inputs by name; in shards also text, parquet, folders, globs and "
        "several of them, separated by commas.",
        None,
    )
    input: Sequence[str] = option(
        "NAME=VALUE: a text for the model, a list as JSON; repeat it for other inputs and rows.",
        (),
        repeated=True,
    )
    column: Sequence[str] = option(
        "INPUT=COLUMN: the column of a file of texts that has another name than the model's input.",
        (),
        repeated=True,
    )
    output_dir: str | None = option("Folder for the files; needed for a set of examples.", None)
    batch_size: int = option("Examples per step, all devices.", 32, least=1, most=training_flags.ROWS - 1)
    server: str = option("Ask TensorFlow Serving: HOST:8501 for REST, grpc://HOST:8500 for gRPC.", "")
    model: str = option("Name of the served model.", "")
    signature: str = option("What to ask of the served model.", "serving_default")

    def require(self, *names: str) -> None:
        """Raises UserError if one of the named options is not given."""
        if missing := [f"--{name}" for name in names if not getattr(self, name)]:
            raise UserError(
                f"{', '.join(missing)} missing: predict for a set of examples, give texts "
                "(--input=text=..., or a file as --data), or give --server to ask a server"
            )
