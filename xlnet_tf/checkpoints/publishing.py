"""Publishes a model on the Hugging Face hub: weights, tokenizer, and a README.md that describes it."""

import contextlib
import dataclasses
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from xlnet_tf import __version__, files, task_registry
from xlnet_tf.checkpoints.checkpoint import Checkpoint
from xlnet_tf.checkpoints.formats import differences, save_checkpoint
from xlnet_tf.checkpoints.model_card import PARAMS_FILE, TOKENIZER_FILE, ModelCard
from xlnet_tf.checkpoints.of_runs import HISTORY, read_history
from xlnet_tf.checkpoints.opening import open_checkpoint
from xlnet_tf.errors import UserError, install_command
from xlnet_tf.hub import checksums
from xlnet_tf.hub.cache import MISREADINGS, first_line, is_of_library, not_a_hub
from xlnet_tf.hub.locating import EXTRA, SCHEME
from xlnet_tf.task_registry import LANGUAGE_MODEL
from xlnet_tf.text.cleaning import MANIFEST_FILE

README = "README.md"
_OF_NO_QUALITY = ("step", "dev_set_since")  # numbers next to metrics
_TRAINING = {  # of params.yaml
    "trainer.train_steps": "steps",
    "task.train_data.global_batch_size": "rows of a step",
    "trainer.optimizer_config.learning_rate": "peak learning rate",
    "trainer.optimizer_config.warmup_steps": "warm-up steps",
    "trainer.optimizer_config.weight_decay": "weight decay",
    "trainer.optimizer_config.layer_decay": "layer decay",
    "task.model.dropout": "dropout",
    "task.model.memory_len": "tokens of memory",
    "runtime.mixed_precision_dtype": "type of activations",
    "task.seed": "seed",
}
_LOCAL_PATH = re.compile(r"(?<=: )['\"]?(?:/|\.{1,2}/|[\w.-]+/)[^\n]*?([^/\n'\"]+)['\"]?$", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_LANGUAGE = re.compile(r"[a-z]{2,3}|code|multilingual")  # what the hub takes; ISO 639 has the codes
_MOST_OF_A_REASON = 300  # characters: the hub lists all licenses


@dataclasses.dataclass(frozen=True)
class Facts:
    """Facts that only the publisher knows; empty ones are left out."""

    license: str = ""  # spelled as on the hub: apache-2.0, mit, ...
    language: str = ""  # a code: en, zh, ...
    dataset: str = ""

    def __post_init__(self):
        if self.license and not _LICENSE.fullmatch(self.license):
            raise UserError(
                f"license is {self.license!r}; expected what the hub calls it, such as apache-2.0, mit or "
                "other"
            )
        if self.language and not _LANGUAGE.fullmatch(self.language):
            raise UserError(
                f"language is {self.language!r}; expected a code of two or three small letters, such as en "
                "or zh, or multilingual"
            )


@contextlib.contextmanager
def prepared(
    model_dir: str, facts: Facts, format: str = "hugging_face", name: str = "OWNER/NAME"
) -> Iterator[epath.Path]:
    """Writes the files to publish to a temporary folder, without local paths in them."""
    checkpoint = open_checkpoint(model_dir)
    if not epath.Path(checkpoint.path_of(TOKENIZER_FILE)).exists():
        raise UserError(
            f"there is no {TOKENIZER_FILE} next to {checkpoint.path}: copy the model's tokenizer there"
        )
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(checkpoint, folder, format)
        path = epath.Path(folder)
        card = ModelCard.read(folder)
        remote = {how: where for how, where in card.origin.items() if "://" in where}
        written = dataclasses.replace(card, external={}, origin=remote)
        written.write(folder)
        if (params := path / PARAMS_FILE).exists():
            files.write(params, _LOCAL_PATH.sub(r"\1", params.read_text()))
        files.write(path / README, readme(checkpoint, written, model_dir, path, facts, name))
        names = sorted(file.name for file in path.iterdir() if file.name != checksums.FILE_NAME)
        checksums.write(folder, [name for name in names if name != README])
        yield path


def readme(
    checkpoint: Checkpoint, card: ModelCard, model_dir: str, folder: epath.Path, facts: Facts, name: str
) -> str:
    """Returns a README.md: metadata, architecture, metrics, training, and what the format cannot express."""
    library = _library()
    params = files.read_yaml(folder / PARAMS_FILE) if (folder / PARAMS_FILE).exists() else {}
    manifest = files.read_json(folder / MANIFEST_FILE) if (folder / MANIFEST_FILE).exists() else {}
    metrics = {
        name: value for name, value in _metrics(card, model_dir).items() if type(value) in (int, float)
    }
    task, config = card.task or LANGUAGE_MODEL, checkpoint.config
    entry = task_registry.tasks().get(task)
    pipeline = entry.pipeline if entry else "fill-mask"
    base = re.match(rf"{SCHEME}([^@]+)", card.origin.get("init_checkpoint", ""))
    data = facts.dataset or "its dev set"
    results = [
        library.EvalResult(pipeline or "other", data, data, name, value) for name, value in metrics.items()
    ]
    metadata = library.ModelCardData(
        license=facts.license or None,
        language=facts.language or None,
        datasets=[facts.dataset] if _NAME.fullmatch(facts.dataset) else None,
        base_model=base and base[1],
        library_name="xlnet-tf",
        pipeline_tag=pipeline or None,
        tags=["xlnet", "tensorflow", task],
        model_name="XLNet" if results else None,
        eval_results=results or None,
    )
    weights = sum(math.prod(shape) for shape in checkpoint.arrays.shapes.values())
    architecture = {
        "layers": config.n_layer, "width": config.d_model, "heads": f"{config.n_head} of {config.d_head}",
        "feed-forward width": config.d_inner, "activation": config.ff_activation, "pieces": config.n_token,
        "weights": weights, "labels": ", ".join(card.labels or ()),
    }  # fmt: skip
    training = {meaning: _field(params, name) for name, meaning in _TRAINING.items()}
    training |= {"tokens of a sequence": manifest.get("seq_len"), "data": facts.dataset, **card.origin}
    install = f"pip install 'xlnet_tf-{__version__}-py3-none-any.whl[{EXTRA}]'"
    command = f"xlnet-tf export{f' --head={task}' * (task != LANGUAGE_MODEL and not manifest)}"
    texts = [
        f"---\n{metadata.to_yaml()}\n---\n\n# XLNet: {task.replace('_', ' ')}",
        f"Written by xlnet-tf {__version__}. Install its wheel, and load the model by its name:",
        f"```bash\n{install}\n{command} --model_dir=hf://{name} --output_dir=served\n```",
        _table("Architecture", architecture),
        _table("Metrics", metrics),
        _table("Training", training),
        _section_of_differences(checkpoint, card.format),
    ]
    return "\n\n".join(filter(None, texts)) + "\n"


def push(folder: epath.Path, name: str, *, private: bool = False, update: bool = False) -> str:
    """Uploads a prepared folder in one commit, to a new model unless `update`; returns the commit's address.

    If the hub refuses or cannot be reached, the UserError says if a new, empty model is left.
    """
    library = _library()
    check_name(name)
    api = library.HfApi()
    is_made = False
    try:
        library.ModelCard((folder / README).read_text()).validate()  # first: a refusal leaves no empty model
        api.create_repo(name, private=private or None, exist_ok=update)
        is_made = True
        return str(
            api.upload_folder(
                repo_id=name,
                folder_path=os.fspath(folder),
                commit_message=f"Weights of xlnet-tf {__version__}",
            ).commit_url
        )
    except Exception as error:
        if not (_status(error) or isinstance(error, (OSError, *MISREADINGS)) or is_of_library(error)):
            raise
        raise UserError(_refusal(error, name, is_made)) from error


def check_name(name: str) -> None:
    """Raises UserError unless a name has the hub's form OWNER/NAME."""
    if not _NAME.fullmatch(name):
        raise UserError(f"{name} is not the name of a model: expected OWNER/NAME")
    _library()  # or says what to install
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except ValueError as error:
        raise UserError(f"{name} is not a name that the hub takes: {first_line(error)}") from error


def _refusal(error: Exception, name: str, is_made: bool) -> str:
    status = _status(error)
    if status == 409:
        return f"{SCHEME}{name} exists already: give --update to add a commit to it, or another name"
    if status in (401, 403):
        return (
            f"the hub refuses to write {SCHEME}{name}: set HF_TOKEN to a token of yours that may write there "
            "(https://huggingface.co/settings/tokens)"
        )
    # The hub does not take what README.md says of the license, say.
    if status == 400 or (type(error) is ValueError and not is_made):
        why = " ".join(str(error).split())[:_MOST_OF_A_REASON]
        return f"{SCHEME}{name} cannot be written: {why}. Check --license, --language and --dataset"
    if isinstance(error, MISREADINGS):
        return f"{SCHEME}{name} cannot be written: {not_a_hub(error)}"
    again = " with --update, as the model exists by now" * is_made
    return f"{SCHEME}{name} cannot be written ({first_line(error)}). Check the network and start again{again}"


def _status(error: Exception) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise UserError(
            f"what writes to the Hugging Face hub is not installed: {install_command(EXTRA)}"
        ) from None
    return huggingface_hub


def _metrics(card: ModelCard, model_dir: str) -> Mapping[str, Any]:
    path = f"{model_dir}/{HISTORY}"
    metrics = card.metrics
    if not metrics and epath.Path(path).exists():
        metrics = next((line for line in reversed(read_history(path)) if line["kind"] == "dev"), {})
    return {name: value for name, value in metrics.items() if name not in _OF_NO_QUALITY}


def _section_of_differences(checkpoint: Checkpoint, format: str) -> str:
    if not (lines := differences(checkpoint, format)):
        return ""
    owner = {"hugging_face": "Hugging Face's", "original": "the original's"}[format]
    begin = f"What differs from the trained model when these weights are used in {owner} format:"
    return "\n".join(["## Differences", "", begin, "", *(f"- {line}" for line in lines)])


def _field(values: Any, path: str) -> Any:
    for name in path.split("."):
        values = values.get(name) if isinstance(values, dict) else None
    return values


def _table(title: str, values: Mapping[str, Any]) -> str:
    def cell(value: Any) -> str:
        return (
            f"{value:.5g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
        )

    rows = [f"| {name} | {cell(value)} |" for name, value in values.items() if value not in (None, "")]
    return "\n".join([f"## {title}", "", "| | |", "|---|---|", *rows]) if rows else ""
