"""Options of `run_scripts.predict`."""

import dataclasses
import json
from collections.abc import Sequence

from run_scripts.common import training_flags
from xlnet_tf import flags
from xlnet_tf.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """The model, its inputs, and where its answers go."""

    model_dir: str | None = flags.option(
        "The fine-tuned model: folder of a run, of save_pretrained or, for texts, of export, a .keras file "
        "or hf://OWNER/NAME; needed without --server.",
        None,
        group="model",
    )
    checkpoint: str = flags.option("Weights: best, last, or as ckpt-100; empty: best if kept, else last.", "")
    data: str | None = flags.option(
        "Folder of a set of examples that a builder wrote, or a file of texts: csv, tsv "
        "or JSON lines, with the model's inputs by name; in shards also text, parquet, folders, globs and "
        "several of them, separated by commas.",
        None,
        group="data",
    )
    input: Sequence[str] = flags.option(
        "NAME=VALUE: a text for the model, a list as JSON; repeat it for other inputs and rows.",
        (),
        repeated=True,
    )
    text: Sequence[str] = flags.option(
        "A text to answer, as --input=text=; repeat it for more.",
        (),
        repeated=True,
        aliases=("words",),
        group="data",
    )
    text_pair: Sequence[str] = flags.option(
        "The second text of a pair, after --text.", (), repeated=True, group="data"
    )
    question: Sequence[str] = flags.option("A question to answer.", (), repeated=True, group="data")
    context: Sequence[str] = flags.option(
        "The text that the question is about.", (), repeated=True, group="data"
    )
    option: Sequence[str] = flags.option(
        "An option of the question; repeat it.", (), repeated=True, group="data"
    )
    query: Sequence[str] = flags.option("A query to rank candidates for.", (), repeated=True, group="data")
    candidate: Sequence[str] = flags.option(
        "A candidate for the query; repeat it.", (), repeated=True, group="data"
    )
    column: Sequence[str] = flags.option(
        "INPUT=COLUMN: the column of a file of texts that has another name than the model's input.",
        (),
        repeated=True,
        group="data",
    )
    output_dir: str | None = flags.option(
        "Folder for the files; needed for a set of examples.", None, group="output"
    )
    batch_size: int = flags.option(
        "Examples per step, all devices.", 32, least=1, most=training_flags.ROWS - 1
    )
    server: str = flags.option("Ask TensorFlow Serving: HOST:8501 for REST, grpc://HOST:8500 for gRPC.", "")
    model: str = flags.option("Name of the served model.", "")
    signature: str = flags.option("What to ask of the served model.", "serving_default")

    def with_inputs(self) -> "PredictOptions":
        """Returns the options with --text, --question and the like as --input."""
        names = {"text": "text_a" if self.text_pair else "text", "text_pair": "text_b"}
        pairs = [
            f"{names.get(flag, flag)}={text}"
            for flag in ("text", "text_pair", "question", "context", "query")
            for text in getattr(self, flag)
        ]
        for flag, asked in (("option", self.question or self.context), ("candidate", self.query)):
            if texts := getattr(self, flag):
                if len(asked) > 1:
                    raise UserError(f'--{flag} is for one row: give more with --input={flag}s=\'["a", "b"]\'')
                pairs.append(f"{flag}s={json.dumps(list(texts))}")
        if self.option:  # a context or a question may be missing
            pairs += [f"{name}=" for name in ("question", "context") if not getattr(self, name)]
        return dataclasses.replace(self, input=(*self.input, *pairs))

    def require(self, *names: str) -> None:
        """Raises UserError if one of the named options is not given."""
        if missing := [f"--{name}" for name in names if not getattr(self, name)]:
            raise UserError(
                f"missing: {', '.join(missing)}. Give a model and texts (--model_dir, and --text or a file "
                "as --data), a model and a set of examples (--model_dir, --data, --output_dir), or a server "
                "(--server)"
            )
