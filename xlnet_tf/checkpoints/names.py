"""The names of each variable: ours, the original's and Hugging Face's, in one table.

Our names are the canonical ones: a checkpoint of any format is read into them, and written from them. The
table covers the encoder and every head of the original and of Hugging Face; a layer that wants to take over
a head's weights names its variables as the first column does. The rows of the encoder and of what heads share
are here, those of a task's head in its entry of task_registry.

How a name of the table is read:
    {i}         the layer's number, from 0.
    {task}      the task that a head was trained for, as the original's scopes have it: `imdb`, `sts-b`, ...
    name[i]     entry i of an array that stacks all layers; name[0,0]: the one entry of an array of more axes.
    name.T      the transposed array: PyTorch's linear layers store [out, in].
A variable of a head without a name in a format is kept there under our name, so that nothing is lost on a
round trip. One of the encoder must be folded into others by the format's writer, as tied biases are for
Hugging Face; if it is not, the format is refused.
Shapes use the project's letters, and C for the number of classes.

Source: modeling.py, function_builder.py of the original (its `sequnece_summary` is spelled so); the model
classes of Hugging Face's modeling_xlnet.py.
"""

import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from xlnet_tf import task_registry
from xlnet_tf.checkpoints.arrays import Arrays, Entry
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError

ORIGINAL, HUGGING_FACE = "original", "hugging_face"
_FORMATS = {ORIGINAL: "the original", HUGGING_FACE: "Hugging Face's XLNet"}
PROJECTION = "summary/projection/kernel"  # which a pooled vector may have or not
# What predicts pieces: the head, and the vector that the query stream starts from. No other head reads the
# latter, and the original's fine-tuning creates no such variable.
LANGUAGE_MODEL_HEAD, QUERY_START = "lm_bias", "mask_embedding"

# In every table: our name, shape, the original's name, Hugging Face's name, each after the table's prefixes.
_EMBEDDINGS = (
    ("word_embedding/embeddings", "V D", "word_embedding/lookup_table", "word_embedding.weight"),
    ("mask_embedding", "D", "mask_emb/mask_emb[0,0]", "mask_emb[0,0]"),
)
_LAYER = (
    ("attention/query/kernel", "D N H", "rel_attn/q/kernel", "rel_attn.q"),
    ("attention/key/kernel", "D N H", "rel_attn/k/kernel", "rel_attn.k"),
    ("attention/value/kernel", "D N H", "rel_attn/v/kernel", "rel_attn.v"),
    ("attention/position/kernel", "D N H", "rel_attn/r/kernel", "rel_attn.r"),
    ("attention/output/kernel", "D N H", "rel_attn/o/kernel", "rel_attn.o"),
    ("attention_norm/gamma", "D", "rel_attn/LayerNorm/gamma", "rel_attn.layer_norm.weight"),
    ("attention_norm/beta", "D", "rel_attn/LayerNorm/beta", "rel_attn.layer_norm.bias"),
    ("feed_forward/inner/kernel", "D F", "ff/layer_1/kernel", "ff.layer_1.weight.T"),
    ("feed_forward/inner/bias", "F", "ff/layer_1/bias", "ff.layer_1.bias"),
    ("feed_forward/outer/kernel", "F D", "ff/layer_2/kernel", "ff.layer_2.weight.T"),
    ("feed_forward/outer/bias", "D", "ff/layer_2/bias", "ff.layer_2.bias"),
    ("feed_forward_norm/gamma", "D", "ff/LayerNorm/gamma", "ff.layer_norm.weight"),
    ("feed_forward_norm/beta", "D", "ff/LayerNorm/beta", "ff.layer_norm.bias"),
)
_SEGMENTS = (("segment_embedding", "2 N H", "seg_embed[i]", "seg_embed"),)
_BIASES = (  # a layer's own, with untie_r
    ("content_bias", "N H", "r_w_bias[i]", "r_w_bias"),
    ("position_bias", "N H", "r_r_bias[i]", "r_r_bias"),
    ("segment_bias", "N H", "r_s_bias[i]", "r_s_bias"),
)
_TIED_BIASES = (  # of all layers; hugging_face.py folds them into those of the layers
    ("content_bias", "N H", "r_w_bias", None),
    ("position_bias", "N H", "r_r_bias", None),
    ("segment_bias", "N H", "r_s_bias", None),
)
_LANGUAGE_MODEL = (
    ("lm_bias", "V", "model/lm_loss/bias", "lm_loss.bias"),
    ("next_sentence/kernel", "D 2", None, None),
    ("next_sentence/bias", "2", None, None),
)
# The pooled vector: of pooling by attention the learned query and its layer, and a projection.
_POOLING = (
    ("query", "D", "summary_bias", None),
    ("query/kernel", "D N H", "abs_attn/q/kernel", None),
    ("key/kernel", "D N H", "abs_attn/k/kernel", None),
    ("value/kernel", "D N H", "abs_attn/v/kernel", None),
    ("output/kernel", "D N H", "abs_attn/o/kernel", None),
    ("norm/gamma", "D", "abs_attn/LayerNorm/gamma", None),
    ("norm/beta", "D", "abs_attn/LayerNorm/beta", None),
)
_SUMMARY = (
    ("projection/kernel", "D D", "summary/kernel", "summary.weight.T"),
    ("projection/bias", "D", "summary/bias", "summary.bias"),
)
# Hugging Face's only: an answer's beginning and end apart from each other.
_INDEPENDENT_SPAN = (
    ("logits/kernel", "D C", None, "qa_outputs.weight.T"),
    ("logits/bias", "C", None, "qa_outputs.bias"),
)

_PATTERNS = {"{i}": r"(?P<i>0|[1-9]\d*)", "{task}": r"(?P<task>[^/]+)"}


class _Location(NamedTuple):
    """Where a format keeps a variable: in all of an array, in an entry of it, or transposed."""

    template: str
    index: tuple[str, ...] = ()
    transposed: bool = False

    @classmethod
    def parse(cls, notation: str) -> "_Location":
        template, _, index = notation.removesuffix(".T").partition("[")
        return cls(
            template, tuple(index.removesuffix("]").split(",")) if index else (), notation.endswith(".T")
        )

    def match(self, name: str) -> re.Match | None:
        return _regex(self.template).fullmatch(name)


class _Row(NamedTuple):
    name: _Location
    letters: tuple[str, ...]
    locations: Mapping[str, _Location | None]

    def shape(self, config: XLNetConfig) -> tuple[int | None, ...]:
        sizes = {
            "V": config.n_token,
            "D": config.d_model,
            "N": config.n_head,
            "H": config.d_head,
            "F": config.d_inner,
            "2D": 2 * config.d_model,
            "C": None,
        }
        return tuple(sizes[letter] if letter in sizes else int(letter) for letter in self.letters)


@functools.cache
def _regex(template: str) -> re.Pattern:
    parts = re.split(r"(\{\w+\})", template)
    return re.compile("".join(_PATTERNS.get(part, re.escape(part)) for part in parts))


def _rows(table, native: str = "", original: str = "", hugging_face: str = "") -> tuple[_Row, ...]:
    """Turns a table into rows, given the prefixes of its names."""

    def location(prefix, name):
        return None if name is None else _Location.parse(prefix + name)

    return tuple(
        _Row(
            _Location(native + name),
            tuple(letters.split()),
            {ORIGINAL: location(original, their_name), HUGGING_FACE: location(hugging_face, hf_name)},
        )
        for name, letters, their_name, hf_name in table
    )


_ENCODER_ROWS = (
    *_rows(_EMBEDDINGS, "", "model/transformer/", "transformer."),
    *_rows(_LAYER, "layer_{i}/", "model/transformer/layer_{i}/", "transformer.layer.{i}."),
    *_rows(_SEGMENTS, "layer_{i}/attention/", "model/transformer/", "transformer.layer.{i}.rel_attn."),
)
_BIAS_ROWS = _rows(_BIASES, "layer_{i}/attention/", "model/transformer/", "transformer.layer.{i}.rel_attn.")
_TIED_ROWS = _rows(_TIED_BIASES, "tied_biases/", "model/transformer/")
_SHARED_ROWS = (  # variables of no task
    *_rows(_LANGUAGE_MODEL),
    *_rows(_POOLING, "pooling/", "model/sequnece_summary/"),
    *_rows(_SUMMARY, "summary/", "model/sequnece_summary/", "sequence_summary."),
    *_rows(_INDEPENDENT_SPAN, "span_independent/"),
)


@functools.cache
def _head_rows() -> tuple[_Row, ...]:
    of_tasks = (_rows(task.variables, f"{task.head}/") for task in task_registry.tasks().values())
    return sum(of_tasks, _SHARED_ROWS)


@functools.cache
def _all_rows() -> tuple[_Row, ...]:
    return _ENCODER_ROWS + _BIAS_ROWS + _TIED_ROWS + _head_rows()


@functools.lru_cache(maxsize=4096)
def _row(name: str) -> _Row | None:
    return next((row for row in _all_rows() if row.name.match(name)), None)


def canonical(variable_name: str) -> str:
    """Returns the name of a model's variable without the names of the models around it.

    Of "pretrainer/encoder/layer_0/attention/key/kernel:0" that is the longest tail that the table has,
    "layer_0/attention/key/kernel"; a variable that the table does not have keeps its path.
    """
    path = variable_name.removesuffix(":0").split("/")
    tails = ("/".join(path[start:]) for start in range(len(path)))
    return next((tail for tail in tails if _row(tail)), "/".join(path))


def known(name: str) -> bool:
    """Returns whether the table has a variable of this (canonical) name."""
    return _row(name) is not None


def head_scope(name: str) -> str:
    """Returns which part of a model a variable belongs to: "encoder", or the head, as "lm_bias" or "span"."""
    row = _row(name)
    if row and row not in _head_rows():
        return "encoder"
    return name.partition("/")[0]


def encoder_shapes(config: XLNetConfig) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the encoder's variables by name."""
    rows = _ENCODER_ROWS + (_BIAS_ROWS if config.untie_r else _TIED_ROWS)
    shapes = {}
    for row in rows:
        layers = range(config.n_layer) if "{i}" in row.name.template else (None,)
        shapes |= {row.name.template.format(i=layer): row.shape(config) for layer in layers}
    return shapes


def head_shape(name: str, config: XLNetConfig) -> tuple[int | None, ...]:
    """Returns the shape of a head's variable that the table has; None stands for the number of classes."""
    return _row(name).shape(config)


def to_canonical(arrays: Arrays, column: str) -> Arrays:
    """Renames a format's arrays to ours by its column of the table; unknown ones keep their names."""
    entries = {}
    for name, entry in arrays.entries.items():
        arrays_of_layers = dict(_read(name, entry, column))
        entries.update(arrays_of_layers or {name: entry})
    return Arrays(entries)


def _read(name: str, entry: Entry, column: str) -> Iterator[tuple[str, Entry]]:
    """Yields our names and entries of a format's array."""
    for row in _all_rows():
        location = row.locations[column]
        match = location and location.match(name)
        rank = len(row.letters) + (len(location.index) if location else 0)
        if not match or len(entry.shape) != rank:
            continue
        fields, item_shape = match.groupdict(), entry.shape[len(location.index) :]
        if location.transposed:
            yield row.name.template.format(**fields), Entry(item_shape[::-1], lambda: entry.read().T)
        elif not location.index:
            yield row.name.template.format(**fields), entry
        else:
            for index in np.ndindex(*entry.shape[: len(location.index)]):
                fields |= {letter: number for letter, number in zip(location.index, index) if letter == "i"}
                yield (
                    row.name.template.format(**fields),
                    Entry(item_shape, lambda index=index: entry.read()[index]),
                )


def from_canonical(arrays: Arrays, column: str) -> Arrays:
    """Renames our arrays to a format's; those of heads without a name there keep ours.

    Raises UserError if a variable of the encoder has no name, or a stack of all layers would have holes.
    """
    entries, stacks = {}, {}
    for name, entry in arrays.entries.items():
        row = _row(name)
        location = row and row.locations[column]
        if not location:
            if head_scope(name) == "encoder":
                raise UserError(
                    f"the encoder has {name}, which {_FORMATS[column]} does not: its models would compute "
                    "something else. Write another format."
                )
            entries[name] = entry
            continue
        fields = row.name.match(name).groupdict()
        external = location.template.format(**fields)
        if location.index:
            index = tuple(int(fields.get(letter, letter)) for letter in location.index)
            stacks.setdefault(external, {})[index] = entry
        elif location.transposed:
            entries[external] = Entry(entry.shape[::-1], lambda entry=entry: entry.read().T)
        else:
            entries[external] = entry
    return Arrays(entries | {name: _stack(name, items) for name, items in stacks.items()})


def heads_without_name(arrays: Arrays, column: str) -> list[str]:
    """Returns the heads that a format has no names for, so that its models leave them out."""
    heads = {name: head_scope(name) for name in arrays if known(name) and head_scope(name) != "encoder"}
    return sorted({head for name, head in heads.items() if not _row(name).locations[column]})


def _stack(name: str, items: Mapping[tuple[int, ...], Entry]) -> Entry:
    sizes = tuple(size + 1 for size in max(items))
    shapes = {entry.shape for entry in items.values()}
    if len(items) != math.prod(sizes) or len(shapes) > 1:
        raise UserError(
            f"{name} stacks all layers; expected layers 0 to {max(items)[0]} with arrays of one shape."
        )

    shape = sizes + shapes.pop()

    def read() -> np.ndarray:
        return np.stack([items[index].read() for index in np.ndindex(*sizes)]).reshape(shape)

    return Entry(shape, read)
