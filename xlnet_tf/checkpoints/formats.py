"""Loads, writes and checks checkpoints of every format."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Collection, Iterator, Sequence

import tensorflow as tf
import tf_keras
from absl import logging

from xlnet_tf import files, folders
from xlnet_tf.checkpoints import hugging_face, names, tensorflow_files
from xlnet_tf.checkpoints.arrays import Arrays
from xlnet_tf.checkpoints.checkpoint import CONFIG_FILE, OUR_FILE, Checkpoint
from xlnet_tf.checkpoints.coverage import Coverage
from xlnet_tf.checkpoints.model_card import (
    BEST,
    CARD_FILE,
    COMPANIONS,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    ModelCard,
    task_of,
)
from xlnet_tf.checkpoints.opening import open_checkpoint
from xlnet_tf.checkpoints.safetensors_file import write_safetensors
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.hub import checksums
from xlnet_tf.hub.locating import HUGGING_FACE_WEIGHTS, WEIGHTS
from xlnet_tf.ownership import folder_lease
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.tokenizer_json import TOKENIZER_JSON_FILE

FORMATS = ("ours", "original", "hugging_face")


@contextlib.contextmanager
def building_from(checkpoint: Checkpoint) -> Iterator[set[str]]:
    """Initializes the variables of a model, while it is built, with the values of a checkpoint.

    Drawing random numbers first would take longer. Initializers still draw their seeds, so that a new head's
    weights are the same. Yields the names of the initialized variables, for `load_into`.
    """
    loaded = set()

    def create(next_creator, **options):
        initial = options["initial_value"]
        name = names.canonical(f"{tf.get_current_name_scope()}/{options['name']}")
        normal = isinstance(getattr(initial, "func", None), tf_keras.initializers.RandomNormal)
        if normal and checkpoint.arrays.shapes.get(name) == tuple(initial.args[0]):
            initial.func([1])
            options["initial_value"] = lambda: checkpoint.arrays[name]
            loaded.add(name)
        return next_creator(**options)

    with tf.variable_creator_scope(create):
        yield loaded


def load_into(
    model: tf_keras.Model,
    source: str | os.PathLike | Checkpoint,
    *,
    strict: bool = True,
    new: Sequence[str] = (),
    loaded: Collection[str] = (),
) -> Coverage:
    """Loads a checkpoint of any format into a model.

    A head that only the checkpoint has is ignored: that is how a pretrained model becomes an encoder. The
    vector that the query stream starts from, which only a language model reads, keeps its initial value in
    other models if the checkpoint lacks it. Anything else that does not fit is an error, so that no part of a
    model stays random by accident.

    Args:
        model: an encoder, or a model with one in its attribute `encoder`; its variables are built.
        strict: raise UserError for what does not fit; if not, load what fits, at least something.
        new: parts of the model that the checkpoint may lack, by their first scope: ("classification_imdb",).
        loaded: names of the variables that `building_from` has initialized.

    Example:
        >>> print(load_into(model, "xlnet_cased_L-12_H-768_A-12").table())
    """
    checkpoint = source if isinstance(source, Checkpoint) else open_checkpoint(source)
    variables = {names.canonical(variable.name): variable for variable in model.variables}
    expected = {name: tuple(variable.shape) for name, variable in variables.items()}
    optional = [] if names.LANGUAGE_MODEL_HEAD in expected else [names.QUERY_START]
    coverage = Coverage.compare(checkpoint.arrays.shapes, expected, checkpoint.stripped, [*new, *optional])
    if strict:
        other = other_architecture(checkpoint.config, getattr(model, "encoder", model).config)
        problems = "; ".join(filter(None, [other, coverage.problems()]))
        if problems:
            raise UserError(f"{checkpoint.path} does not fit the model: {problems}. {_advice(coverage)}")
    if not coverage.loaded:
        raise UserError(f"{checkpoint.path} has nothing that fits the model: {coverage.problems()}.")
    for name in coverage.loaded.keys() - set(loaded):
        variables[name].assign(checkpoint.arrays[name])
    return coverage


def save_model(
    model: tf_keras.Model,
    folder: str | os.PathLike,
    tokenizer: XLNetTokenizer | None = None,
    card: ModelCard | None = None,
) -> None:
    """Writes a model in our format, as `from_pretrained`, `export` and `open_checkpoint` read it.

    Besides weights and architecture it writes how the model reads texts and what its outputs mean. It refuses
    a folder that holds something else, or files that would be taken for this model's.

    Args:
        tokenizer: the model's, which is then written as well; without it, copy spiece.model to the folder.

    Example:
        >>> save_model(model, "sentiment", tokenizer)
        >>> XLNetClassifier.from_pretrained("sentiment").labels
        ['bad', 'good']
    """
    folders.claim(folder, folders.WEIGHTS, flag="folder")
    others = (*COMPANIONS, *WEIGHTS)
    for name in (name for name in others if name not in (TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, OUR_FILE)):
        if tf.io.gfile.exists(f"{os.fspath(folder)}/{name}"):
            raise UserError(
                f"{folder} holds {name}, which would be taken for this model's: choose another folder"
            )
    write_model(model, folder, tokenizer, card)


def write_model(
    model: tf_keras.Model,
    folder: str | os.PathLike,
    tokenizer: XLNetTokenizer | None = None,
    card: ModelCard | None = None,
) -> None:
    """Does what `save_model` does, unchecked, in a folder of the caller's own, such as best weights."""
    folder = os.fspath(folder)
    arrays = Arrays.of({names.canonical(variable.name): variable.numpy() for variable in model.variables})
    tf.io.gfile.makedirs(folder)
    checksums.remove(folder)
    files.write(f"{folder}/{CONFIG_FILE}", getattr(model, "encoder", model).config.to_json())
    (card or ModelCard.of_model(model, tokenizer)).write(folder)
    written = [CONFIG_FILE, CARD_FILE, OUR_FILE]
    if tokenizer:
        files.write(f"{folder}/{TOKENIZER_FILE}", tokenizer.model_proto)
        written.append(TOKENIZER_FILE)
    write_safetensors(arrays, f"{folder}/{OUR_FILE}")
    checksums.write(folder, written)


def save_checkpoint(checkpoint: Checkpoint, folder: str, format: str, *, strict: bool = True) -> Coverage:
    """Writes a checkpoint as "ours", "original" or "hugging_face", with its other files and checksums.

    Unknown variables are a UserError if `strict`, else left out; an incomplete encoder is always an error.
    Returns what was written (`loaded`) and what was not.
    """
    if format not in FORMATS:
        raise UserError(f"the format is {format!r}; expected one of {', '.join(FORMATS)}.")
    folders.claim(folder, folders.WEIGHTS, flag="--output")
    coverage = check(checkpoint)
    if not coverage.complete and (strict or coverage.missing or coverage.other_shape):
        raise UserError(f"{checkpoint.path} does not fit its architecture: {coverage.problems()}.")
    arrays = Arrays({n: entry for n, entry in checkpoint.arrays.entries.items() if n in coverage.loaded})
    source = os.path.dirname(checkpoint.path)
    if os.path.realpath(folder) == os.path.realpath(source):
        raise UserError(f"{folder} is the folder of the checkpoint itself; expected another one to write to.")
    if folders.look(folder)[0] == folders.WEIGHTS:
        _check_same_model(folder, checkpoint.source)
    checkpoint = dataclasses.replace(checkpoint, arrays=arrays)
    card = _converted_card(checkpoint, format)  # first: a file that it is read from may be damaged
    tf.io.gfile.makedirs(folder)
    with folder_lease(folder, "converting weights", "--output"):
        written = _write(checkpoint, card, folder, format)
    _warn_of_others(folder, written, format)
    return coverage


def _check_same_model(folder: str, source: str):
    """Raises UserError unless the weights in a folder were converted from the same model, in any format."""
    origin = (files.fields_reader(folder)(CARD_FILE) or {}).get("origin") or {}
    converted_from = origin.get("converted_from")
    if converted_from is None or _model_of(converted_from) != _model_of(source):
        whose = "whose origin is not known" if converted_from is None else f"converted from {converted_from}"
        raise UserError(
            f"{folder} holds weights {whose}; expected none, or of {source}: choose another --output"
        )


def _model_of(source: str) -> str:
    folder, _, name = source.partition("@")[0].rpartition("/")
    is_file = re.fullmatch(r".*\.(safetensors|json|bin|ckpt)|.*ckpt-\d+", name)
    return os.path.realpath((folder if is_file else f"{folder}/{name}").removesuffix(f"/{BEST}"))


def _warn_of_others(folder: str, written: Collection[str], format: str):
    """Warns of older files in a folder that would be taken for those of the new weights."""
    before = {"ours": (), "hugging_face": (OUR_FILE,), "original": (OUR_FILE, *HUGGING_FACE_WEIGHTS)}[format]
    others = dict.fromkeys(COMPANIONS, "takes it for this model's")
    others |= dict.fromkeys(before, "gets those weights instead of the new ones")
    if TOKENIZER_FILE not in written:
        others |= dict.fromkeys((TOKENIZER_FILE, TOKENIZER_JSON_FILE), "splits texts with this tokenizer")
    for name, effect in others.items():
        if name not in written and tf.io.gfile.exists(f"{folder}/{name}"):
            logging.warning(
                "%s holds %s, too, which does not come with these weights: whoever reads the folder %s. "
                "Remove the file, unless it belongs to them",
                folder,
                name,
                effect,
            )


def _converted_card(checkpoint: Checkpoint, format: str) -> ModelCard:
    """Returns the card that goes with weights in a format."""
    card = checkpoint.card
    # Hugging Face's config.json has rates for training, too; its users may change them.
    settings = card.reading if format == "hugging_face" else card.settings
    task = card.task or task_of(checkpoint.arrays)
    return card.with_origin("converted_from", checkpoint.source, task=task, format=format, settings=settings)


def _write(checkpoint: Checkpoint, card: ModelCard, folder: str, format: str) -> list[str]:
    """Writes weights and their companion files, checksums last; returns the files' names."""
    arrays = checkpoint.arrays
    checksums.remove(folder)
    if format == "original":
        written = tensorflow_files.write_original(arrays, checkpoint.config, folder)
    elif format == "hugging_face":
        written = hugging_face.write_hugging_face(checkpoint, folder)
    else:
        written = [CONFIG_FILE, OUR_FILE]
        files.write(f"{folder}/{CONFIG_FILE}", checkpoint.config.to_json())
        write_safetensors(arrays, f"{folder}/{OUR_FILE}")
    card.write(folder)  # with the weights: it says whose they are, also after a kill
    for path in map(checkpoint.path_of, COMPANIONS):
        name = os.path.basename(path)
        if name not in written and tf.io.gfile.exists(path):
            files.copy(path, f"{folder}/{name}")
            written.append(name)
    written.append(CARD_FILE)
    checksums.write(folder, written)
    return written


def differences(checkpoint: Checkpoint, format: str) -> list[str]:
    """Returns how a model that others read in a format differs from these weights, one per line."""
    if format == "hugging_face":
        return hugging_face.differences(checkpoint)
    lines = []
    if format == "original" and (unread := names.heads_without_name(checkpoint.arrays, format)):
        lines.append(f"the original has no {', '.join(unread)}: it leaves these weights out")
    if format == "original" and checkpoint.config.ff_activation == "gelu_erf":
        lines.append("the original has only gelu's tanh form; outputs differ by about 1e-3 from the source's")
    return lines


def check(checkpoint: Checkpoint) -> Coverage:
    """Compares a checkpoint with its architecture: the whole encoder, and whatever heads it has."""
    if checkpoint.config is None:
        raise UserError(
            f"there is no architecture next to {checkpoint.path}: give its {CONFIG_FILE} or config.json."
        )
    config, shapes = checkpoint.config, checkpoint.arrays.shapes
    encoder = names.encoder_shapes(config)
    heads = {name for name in shapes if names.known(name) and names.head_scope(name) != "encoder"}
    expected = encoder | {name: names.head_shape(name, config) for name in heads}
    scopes = set(map(names.head_scope, heads))
    is_pretrained = bool(scopes) and scopes <= {names.LANGUAGE_MODEL_HEAD, "next_sentence"}
    optional = [] if is_pretrained else [names.QUERY_START]
    return Coverage.compare(shapes, expected, checkpoint.stripped, optional)


def _advice(coverage: Coverage) -> str:
    """Returns what to do about a checkpoint that does not fit a model."""
    reasons = {
        names.LANGUAGE_MODEL_HEAD: "the language-model head",
        names.QUERY_START: "the start of the query stream (the original drops it in fine-tuning)",
    }
    if not coverage.missing or coverage.missing.keys() - reasons:
        return "Give the checkpoint of such a model, or build the model with the checkpoint's architecture."
    lacking = " and ".join(f"{name}, {reasons[name]}" for name in coverage.missing)
    heads = ", ".join(sorted({names.head_scope(name) for name in coverage.unused}))
    return (
        f"The checkpoint is not a language model: it lacks {lacking}{f', but has {heads}' if heads else ''}. "
        "To pretrain, generate, score or fill masks, give pretrained weights; use fine-tuned weights with "
        "their own head (XLNetClassifier and others, export --head)."
    )


def other_architecture(found: XLNetConfig | None, expected: XLNetConfig) -> str:
    """Names the fields in which two architectures differ; the two forms of gelu are near enough to pass."""
    if found is None:
        return ""
    pairs = {name: (value, expected.to_dict()[name]) for name, value in found.to_dict().items()}
    return "; ".join(
        f"{name} is {there} there and {here} in the model"
        for name, (there, here) in pairs.items()
        if str(there).removesuffix("_erf") != str(here).removesuffix("_erf")
    )
