"""model.json, the model card: facts about a model that its weights do not contain.

Runs, conversions, exports and `save_model` write it. Other files next to weights are read into the same card:
params.yaml, manifest.json and metrics.json of our runs, which earlier versions wrote instead of it, and
Hugging Face's config.json and tokenizer_config.json. So a model is the same in each format.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from etils import epath
from typing_extensions import Self

from xlnet_tf import files, manifest_checksum, task_registry
from xlnet_tf.checkpoints import hugging_face_config, names
from xlnet_tf.errors import UserError
from xlnet_tf.task_registry import LANGUAGE_MODEL
from xlnet_tf.text import cleaning, ties
from xlnet_tf.text.cleaning import CARD_FILE, MANIFEST_FILE, TOKENIZER_CONFIG_FILE, CleaningConfig
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.vocabulary import TOKENIZER_FILE

FORMAT_VERSION = 1
PARAMS_FILE = "params.yaml"
METRICS_FILE = "metrics.json"  # metrics of a run's best evaluation
BEST = "best"  # a run's folder with its best weights
# Files that are copied when weights are converted, besides the card.
COMPANIONS = (
    TOKENIZER_FILE,
    MANIFEST_FILE,
    PARAMS_FILE,
    hugging_face_config.CONFIG_FILE,
    TOKENIZER_CONFIG_FILE,
    METRICS_FILE,
    f"{BEST}/{METRICS_FILE}",
)

# How a model reads and answers, by the names of the models' options, then what it was trained with.
_TYPES = {
    "attention_type": str,
    "same_length": bool,
    "clamp_len": int,
    "uniform_when_blind": bool,
    "summary": str,
    "pool_padding": bool,
    "segment_len": int,
    "memory_len": int,
    "reuse_len": int,
    "start_top": int,
    "end_top": int,
    "num_choices": int,
    "dropout": float,
    "attention_dropout": float,
    "initializer_range": float,
}
_ROUNDED = 1e-6  # largest excess of a float32 probability over 1
_SERVING_TYPES = {  # options of the modules in xlnet_tf.serving
    "seq_len": int,
    "pair": bool,
    "truncation": str,
    "alert": dict,
    "alert.label": str,
    "alert.threshold": float,
    "max_question_len": int,
    "stride": int,
    "threshold": float,
    "n_best": int,
    "max_answer_len": int,
    "max_qa_len": int,
    "max_query_len": int,
    "temperature": list,
}
_EXPECTED = {
    dict: "an object with fields", list: "a list", str: "a string", bool: "true or false",
    int: "a whole number", float: "a number",
}  # fmt: skip
_FIELDS = {  # of model.json
    "task": str, "labels": list, "multi_label": bool, "settings": dict, "cleaning": dict, "thresholds": dict,
    "metrics": dict, "origin": dict, "serving": dict,
    "format": str, "ties": str,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ModelCard:
    """What is known of a model besides its weights and their architecture."""

    # What it was trained for: a name of task_registry, or LANGUAGE_MODEL; None: no file says.
    task: str | None = None
    labels: tuple[str, ...] | None = None  # names of its head's classes, in order; None if nobody named them
    multi_label: bool = False  # whether a text may have any number of the classes
    # How it reads texts and answers, and what it was trained with, by the names of the models' options.
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    cleaning: CleaningConfig | None = None  # how its texts are cleaned; None if no file says
    # Thresholds of alerts and answers, by the names of the metrics that found them.
    thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # Results of the evaluation that the weights were kept for, or of the run's best.
    metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Where the weights came from: init_checkpoint, converted_from, exported_from.
    origin: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Options of the task's module in xlnet_tf.serving, with which texts are answered, seq_len among them;
    # empty for runs, whose data has them.
    serving: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # The weights' format. Hugging Face's own files go before the card: their users may change them.
    format: str = "ours"
    ties: str = ties.RULE  # how its tokenizer breaks ties between pieces (see text.ties)
    # Fields of Hugging Face's files, by the file's name; not part of model.json.
    external: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, folder: str, known: Mapping[str, Mapping[str, Any] | None] | None = None) -> Self:
        """Reads the card of a folder; each file is opened once."""
        read = files.fields_reader(folder, known)
        card, hugging_face, run = (of(read, folder) for of in (_of_card, _of_hugging_face, _of_run))
        external_first = card.get("format") == "hugging_face"
        if read(PARAMS_FILE) is not None or ("settings" in card and not external_first):
            hugging_face.pop("settings", None)  # what its files leave open has another default there
        fields: dict[str, Any] = {}
        for source in (card, hugging_face, run) if external_first else (hugging_face, card, run):
            both = {name: {**fields.get(name, {}), **source.get(name, {})} for name in ("settings", "origin")}
            fields |= source | both
        external = {
            name: read(name) or {} for name in (hugging_face_config.CONFIG_FILE, TOKENIZER_CONFIG_FILE)
        }
        if "class_name" in external[hugging_face_config.CONFIG_FILE]:  # Keras'
            external[hugging_face_config.CONFIG_FILE] = {}
        return cls(**fields | {"cleaning": cleaning.find(read, folder), "external": external})

    @classmethod
    def of_model(cls, model: Any, tokenizer: XLNetTokenizer | None = None) -> Self:
        values = getattr(model, "encoder", model).get_config()
        with contextlib.suppress(NotImplementedError):  # a user-defined model
            values |= model.get_config()
        labels = tuple(values.get("labels") or ())
        unnamed = labels == tuple(map(str, range(len(labels))))
        return cls(
            task=task_of(names.canonical(variable.name) for variable in model.variables),
            labels=None if unnamed else labels,
            multi_label=bool(values.get("multi_label")),
            settings={name: values[name] for name in _TYPES if values.get(name) is not None},
            cleaning=tokenizer and tokenizer.cleaning,
        )

    @property
    def reading(self) -> dict[str, Any]:
        """How the model reads and answers, by the names of the models' options."""
        settings = {name: value for name, value in self.settings.items() if _TYPES[name] is not float}
        # A model that reads at once has no use for the memory that it was trained with.
        memory = {name: settings.pop(name, None) for name in ("memory_len", "reuse_len")}
        if segment_len := settings.get("segment_len"):
            memory["memory_len"] = memory["memory_len"] or segment_len
            settings |= {name: value for name, value in memory.items() if value}
        return settings

    def labels_of(self, task: str) -> tuple[str, ...] | None:
        """Returns the labels of a task's head, None if no file has them."""
        return self.labels if self.task in (None, task) else None

    def with_origin(self, how: str, path: str, **changes: Any) -> Self:
        """Returns the card with an origin: `how`, such as "converted_from", and the path of the weights."""
        return dataclasses.replace(self, origin={**self.origin, how: path}, **changes)

    def write(self, folder: str) -> None:
        """Writes model.json; unknown fields are left out."""
        values = {name: getattr(self, name) for name in _FIELDS}
        values["cleaning"] = self.cleaning and self.cleaning.to_dict()
        known = {name: value for name, value in values.items() if value or name == "settings"}
        text = json.dumps({"format_version": FORMAT_VERSION, **known}, indent=1, ensure_ascii=False)
        files.write(f"{folder}/{CARD_FILE}", text + "\n")


def is_run(folder: str) -> bool:
    """Returns whether a folder is of a fine-tuned run, converted or not."""
    manifest = epath.Path(folder) / MANIFEST_FILE
    return manifest.exists() and files.read_json(manifest).get("kind") == "examples"


def task_of(variables: Iterable[str]) -> str | None:
    """Returns the task of the only head among these variables (our names); None if it is not certain."""
    scopes = set(map(names.head_scope, variables))
    tasks = {task.name for scope in scopes if (task := task_registry.entry_for_scope(scope))}
    if not tasks and names.LANGUAGE_MODEL_HEAD in scopes:
        return LANGUAGE_MODEL
    return tasks.pop() if len(tasks) == 1 else None


def _of_card(read: files.FieldsReader, folder: str) -> dict[str, Any]:
    path, values = f"{folder}/{CARD_FILE}", read(CARD_FILE)
    if values is None:
        return {}
    version = values.get("format_version", FORMAT_VERSION)
    if type(version) is not int or version > FORMAT_VERSION:
        raise UserError(
            f"{path} has the format_version {version!r}; this version of xlnet_tf reads those up to "
            f"{FORMAT_VERSION}: update it."
        )
    fields = {name: values[name] for name in _FIELDS if name in values}
    for name, value in fields.items():
        if type(value) is not _FIELDS[name] or (name == "labels" and not _are_strings(value)):
            expected = "strings" if name == "labels" else _EXPECTED[_FIELDS[name]]
            raise UserError(f"{path}: {name} is {value!r}; expected {expected}.")
    if fields.get("ties", ties.RULE) != ties.RULE:
        raise UserError(
            f"{path}: ties is {fields['ties']!r}; expected {ties.RULE!r}, the rule by which this version of "
            "xlnet_tf splits texts: update it."
        )
    if "labels" in fields:
        fields["labels"] = tuple(fields["labels"])
    check_serving(fields.get("serving", {}), f"{path}: serving.")
    return fields | {"settings": _checked(fields.get("settings", {}), path)}


def check_serving(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Returns serving options in the form of model.json, without Python's and numpy's own types."""
    plain = {name: _plain(value) for name, value in options.items()}
    _check_types(plain, _SERVING_TYPES, where)
    alert = plain.get("alert") or {}
    _check_types(alert, _SERVING_TYPES, where, "alert.")
    threshold = alert.get("threshold", 0)
    if threshold is None or not 0 <= threshold <= 1 + _ROUNDED:  # nan, too
        raise UserError(f"{where}alert.threshold is {threshold}; expected 0 to 1")
    return plain


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    return [*map(_plain, value)] if isinstance(value, (list, tuple)) else value


def _of_hugging_face(read: files.FieldsReader, folder: str) -> dict[str, Any]:
    config = read(hugging_face_config.CONFIG_FILE)
    if config is None:
        return {}
    path = f"{folder}/{hugging_face_config.CONFIG_FILE}"
    fields: dict[str, Any] = {"settings": _checked(hugging_face_config.read_settings(config), path)}
    if "id2label" in config:
        fields["labels"] = hugging_face_config.read_labels(config, path)
    if config.get("problem_type") is not None:
        fields["multi_label"] = config["problem_type"] == hugging_face_config.MULTI_LABEL
    return fields


def _of_run(read: files.FieldsReader, folder: str) -> dict[str, Any]:
    """Returns the fields in the files of a run: manifest.json, params.yaml and metrics.json."""
    fields: dict[str, Any] = {}
    if (manifest := read(MANIFEST_FILE)) is not None:
        fields |= _of_manifest(manifest, f"{folder}/{MANIFEST_FILE}")
    if (params := read(PARAMS_FILE)) is not None:
        task = params.get("task")
        model = task.get("model") if isinstance(task, dict) else None
        if not isinstance(model, dict):
            raise UserError(f"{folder}/{PARAMS_FILE} has no task.model; expected the settings of a run.")
        fields["settings"] = fields.get("settings", {}) | _checked(model, f"{folder}/{PARAMS_FILE}")
        if isinstance(path := task.get("init_checkpoint"), str) and path:
            fields["origin"] = {"init_checkpoint": path}
    if metrics := read(METRICS_FILE) or read(f"{BEST}/{METRICS_FILE}"):
        fields |= split_metrics(metrics)
    return fields


def split_metrics(metrics: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the thresholds among the metrics of an evaluation, and the others, as fields of a card."""
    thresholds = {name: value for name, value in metrics.items() if name.endswith("threshold")}
    others = {name: value for name, value in metrics.items() if name not in thresholds}
    return {"thresholds": thresholds, "metrics": others}


def _of_manifest(manifest: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns the fields in the manifest of the data that a model was trained on."""
    if not manifest_checksum.pop_checksum(dict(manifest)):
        raise manifest_checksum.broken(path)
    settings = manifest.get("settings", {})
    if not isinstance(settings, dict):
        raise UserError(f"{path}: settings is {settings!r}; expected an object with fields.")
    if not isinstance(manifest.get("task"), str):
        return {"task": LANGUAGE_MODEL} if manifest.get("kind") == "pretraining" else {}
    kind, known = settings.get("kind"), task_registry.tasks()
    task = task_registry.name_of(manifest["task"], kind)
    fields: dict[str, Any] = {"task": task, "multi_label": kind == "multi_label"}
    if "labels" in settings or (task in known and known[task].labels):
        if not _are_strings(labels := settings.get("labels")):
            raise UserError(f"{path}: labels is {labels!r}; expected strings.")
        fields["labels"] = tuple(labels)
    if task in known and known[task].sequences is None:
        fields["settings"] = _checked({"num_choices": manifest.get("sequences")}, path)
    return fields


def _are_strings(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _checked(settings: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns the model settings in a file; a wrong type is an error."""
    _check_types(settings, _TYPES, f"{path}: ")
    return {name: value for name, value in settings.items() if name in _TYPES and value is not None}


def _check_types(values: Mapping[str, Any], types: Mapping[str, type], where: str, section: str = "") -> None:
    """Raises UserError for a value of the wrong type; unknown names and null are ignored."""
    for name, value in values.items():
        expected = types.get(section + name)
        allowed = (expected, type(None), *[int] * (expected is float))
        if expected and type(value) not in allowed:
            raise UserError(f"{where}{section}{name} is {value!r}; expected {_EXPECTED[expected]}.")
