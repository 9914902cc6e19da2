"""A version in OpenVINO's format, FOLDER/VERSION, as its files say; nothing here imports TensorFlow."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from etils import epath
from typing_extensions import Self

from xlnet_tf import files, hub, task_registry
from xlnet_tf.checkpoints.model_card import ModelCard
from xlnet_tf.errors import UserError
from xlnet_tf.generation.arrays.openvino import OpenVinoEngine
from xlnet_tf.model_folders import OPENVINO_MODEL, openvino_version
from xlnet_tf.schema import check_object
from xlnet_tf.serving.answers.answering import Answering
from xlnet_tf.serving.openvino.compiled import WEIGHTS, CompiledGraph, GraphParts
from xlnet_tf.task_registry import LANGUAGE_MODEL
from xlnet_tf.text.cleaning import CARD_FILE, CleaningConfig
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.vocabulary import TOKENIZER_FILE

FORMAT_VERSION = 1
SERVING_FILE = "serving.json"
RUNTIME = "openvino"
LANGUAGE_MODEL_GRAPHS = "graphs/language_model"  # see generation/functions.py
_AGAIN = "export the model again"


@dataclasses.dataclass(frozen=True)
class OpenVinoFolder:
    """A version; the fields are those of serving.json."""

    format_version: int
    runtime: str
    runtime_version: str
    weights: str  # the kind that it was exported with: "float32", "bfloat16", "int8" or "int4"
    task: str  # a name of task_registry, or LANGUAGE_MODEL
    seq_len: int
    buckets: Sequence[int]  # ascending lengths of sequences that servers pad to; seq_len is the last
    cleaning: dict
    options: dict  # of the task's Answering, besides lengths and labels
    labels: Sequence[str]
    multi_label: bool
    head: dict  # what answers need besides the graph: segment_len, ...
    example: dict  # a typical row of inputs
    path: str = dataclasses.field(default="", compare=False)  # the version's folder

    @classmethod
    def read(cls, version: str) -> Self:
        """Reads a version; raises UserError if a file is missing, damaged or of another runtime."""
        file = f"{version}/{SERVING_FILE}"
        for name in (SERVING_FILE, CARD_FILE, f"{OPENVINO_MODEL.removesuffix('xml')}bin"):
            if not epath.Path(f"{version}/{name}").exists():
                raise UserError(f"{version} has {OPENVINO_MODEL} but no {name}: {_AGAIN}")
        values = files.read_json(file, fix=_AGAIN)
        newer = values.get("format_version", 0)
        if isinstance(newer, int) and newer > FORMAT_VERSION:
            raise UserError(
                f"{file} has the format_version {newer}; this version of xlnet_tf reads those up to "
                f"{FORMAT_VERSION}: update it"
            )
        if values.get("runtime", RUNTIME) != RUNTIME:
            raise UserError(f"{file} is for the runtime {values['runtime']!r}; expected {RUNTIME}: {_AGAIN}")
        check_object(values, cls, file, fix=_AGAIN)
        if values["task"] != LANGUAGE_MODEL and values["task"] not in task_registry.tasks():
            known = ", ".join((LANGUAGE_MODEL, *task_registry.tasks()))
            raise UserError(f"{file}: the task is {values['task']!r}; expected one of {known}")
        if values["weights"] not in WEIGHTS:
            known = ", ".join(WEIGHTS)
            raise UserError(f"{file}: weights are {values['weights']!r}; expected {known}: {_AGAIN}")
        return cls(**values, path=version)

    @property
    def card(self) -> ModelCard:
        return ModelCard.read(self.path)

    @property
    def segment_len(self) -> int:
        """Tokens of the segments in which the model reads; 0: at once."""
        return self.head.get("segment_len", 0)

    def load_tokenizer(self) -> XLNetTokenizer:
        path = f"{self.path}/assets/{TOKENIZER_FILE}"
        if not epath.Path(path).exists():
            raise UserError(f"{self.path} has no assets/{TOKENIZER_FILE}: {_AGAIN}")
        return XLNetTokenizer(path, cleaning=CleaningConfig.from_dict(self.cleaning))

    def graph(self, name: str = OPENVINO_MODEL, *, threads: int = 0, streams: int = 1) -> CompiledGraph:
        """Compiles one of the version's graphs; for threads and streams see CompiledGraph."""
        return CompiledGraph(f"{self.path}/{name}", self.weights, threads=threads, streams=streams)

    def answering(
        self, *, buckets: Sequence[int] | None = None, threads: int = 0, streams: int = 1
    ) -> Answering:
        """Loads what answers texts; `buckets` are other lengths to pad to than the version's."""
        entry = task_registry.find(self.task)
        if not entry.answering:
            raise UserError(f"{self.path}: the task {self.task} cannot answer texts without TensorFlow")
        options: dict[str, Any] = {
            **self.options,
            "seq_len": self.seq_len,
            "segment_len": self.segment_len,
            "buckets": None if self.segment_len else buckets or self.buckets,
        }
        if entry.labels:
            options |= {"labels": self.labels, "multi_label": self.multi_label}
        settings = self.card.settings
        options |= {name: settings[name] for name in ("start_top", "end_top") if name in settings}
        graph = self.graph(threads=threads, streams=streams)
        return entry.load("answering")(graph, self.load_tokenizer(), **options)

    def language_model(self, threads: int = 0) -> OpenVinoEngine:
        """Loads what a language model computes; raises UserError for other tasks."""
        if self.task != LANGUAGE_MODEL:
            raise UserError(
                f"{self.path} is exported for {self.task}, not a language model: ask it with predict or "
                "xlnet_tf.from_pretrained"
            )
        path = f"{self.path}/{LANGUAGE_MODEL_GRAPHS}.xml"
        graphs = GraphParts(path, self.weights, threads=threads, of_few_rows=["step"])
        [vocab_size] = graphs.shapes("write_head")["log_probs"][1:]
        return OpenVinoEngine(
            graphs.compile,
            n_layer=sum(name.startswith("layer_") for name in graphs.shapes("vectors")),
            d_model=graphs.shapes("write_head")["rows"][1],
            vocab_size=vocab_size,
            left_to_right=self.card.settings.get("attention_type") == "uni",
        )


def find_folder(path: str | os.PathLike) -> OpenVinoFolder | None:
    """Reads the newest version at a path, or one by itself; None if it is not a model for OpenVINO.

    Raises UserError if the version is damaged, or of another runtime.
    """
    version = openvino_version(hub.locate(path).folder.rstrip("/"))
    return OpenVinoFolder.read(version) if version else None
