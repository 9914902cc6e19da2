"""Hugging Face's XLNet in and out: `config.json` with `model.safetensors` or `pytorch_model.bin`.

Where its conventions differ:
- Its "gelu" is the exact one, elsewhere that is the tanh form, which it calls "gelu_new". Each is read
  as what it is ("gelu_erf" is the exact one here), so that outputs agree. The released weights were trained
  with the tanh form, though their config.json says "gelu": outputs of Hugging Face's models differ by about
  1e-3 from the original's for that reason.
- Every layer has its own attention biases, whatever `untie_r` says: tied ones are copied to all layers, and
  are tied again if untie_r is false and all layers agree.
- `lm_loss.weight` repeats the word embedding, and a file may hold one or both.
- A base model (XLNetModel) may leave out the prefix `transformer.`.
- `logits_proj` is the head of classification, of regression or of multiple choice; the config says which.
- The heads' width must fill the model's: d_head = d_model / n_head.
"""

import dataclasses
import json
import re
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from xlnet_tf import files, task_registry
from xlnet_tf.checkpoints import hugging_face_config, names
from xlnet_tf.checkpoints.arrays import Arrays, Entry
from xlnet_tf.checkpoints.checkpoint import Checkpoint
from xlnet_tf.checkpoints.hugging_face_config import CONFIG_FILE, MULTI_LABEL, SINGLE_LABEL
from xlnet_tf.checkpoints.safetensors_file import read_safetensors, write_safetensors
from xlnet_tf.checkpoints.torch_file import read_torch_file
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError
from xlnet_tf.hub import checksums
from xlnet_tf.hub.locating import HUGGING_FACE_WEIGHTS
from xlnet_tf.text.cleaning import DEFAULT_CLEANING, TOKENIZER_CONFIG_FILE
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.tokenizer_json import TOKENIZER_JSON_FILE, write_tokenizer_json
from xlnet_tf.text.vocabulary import TOKENIZER_FILE

NO_TASK = "default"  # the task's name when a config has none

_DEFAULT_FIELDS = {"mem_len": None, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 5}
# Fields of the source's config.json that are not copied but written anew.
_FIELDS_OF_WEIGHTS = {"n_token", "dtype", "torch_dtype"}
_FIELDS_OF_HEAD = {
    "architectures", "problem_type", "finetuning_task", "num_labels", "id2label", "label2id",
}  # fmt: skip
_EMBEDDING, _TIED_EMBEDDING = "transformer.word_embedding.weight", "lm_loss.weight"
_BASE_MODEL = re.compile(r"(mask_emb$|word_embedding\.|layer\.)")
_POOLED_HEAD = ".logits_proj."
_PROBLEMS = ("regression", SINGLE_LABEL, MULTI_LABEL)
_SEQUENCE_MODEL = "XLNetForSequenceClassification"
_OTHER_MODELS = {"span_independent": "XLNetForQuestionAnsweringSimple", "lm_bias": "XLNetLMHeadModel"}
_BIASES = ("content_bias", "position_bias", "segment_bias")


def read_hugging_face(path: str, config: XLNetConfig | None, values: dict[str, Any]) -> Checkpoint:
    """Opens Hugging Face's weights; the fields of their config.json, if any, say which head it is."""
    arrays = _read_files(path)
    entries = {
        f"transformer.{name}" if _BASE_MODEL.match(name) else name: entry
        for name, entry in arrays.entries.items()
    }
    tied = entries.pop(_TIED_EMBEDDING, None)
    if tied and not np.array_equal(entries.setdefault(_EMBEDDING, tied).read(), tied.read()):
        raise UserError(
            f"{path}: {_TIED_EMBEDDING} differs from {_EMBEDDING}; expected a language model that "
            "shares them."
        )
    head = _pooled_head(values, entries)
    entries = {
        f"{head}.{name}" if name.startswith("logits_proj.") else name: entry
        for name, entry in entries.items()
    }
    arrays = names.to_canonical(Arrays(entries), names.HUGGING_FACE)
    if config and not config.untie_r:
        arrays, config = _tie(arrays, config)
    return Checkpoint(path, "hugging_face", arrays, config)


def write_hugging_face(checkpoint: Checkpoint, folder: str) -> list[str]:
    """Writes model.safetensors, config.json and the tokenizer for `from_pretrained`; returns the names."""
    arrays, config = checkpoint.arrays, checkpoint.config
    if config.n_head * config.d_head != config.d_model:
        raise UserError(
            f"n_head * d_head is {config.n_head} * {config.d_head}, and d_model is {config.d_model}; "
            "Hugging Face's XLNet has only models where the two are equal."
        )
    heads = _pooled_heads(arrays)
    external = {
        name.removeprefix(f"{heads[0]}.") if len(heads) == 1 else name: entry
        for name, entry in names.from_canonical(_untie(arrays, config), names.HUGGING_FACE).entries.items()
    }
    write_safetensors(Arrays(external), f"{folder}/{HUGGING_FACE_WEIGHTS[0]}")
    fields = {CONFIG_FILE: _config_fields(checkpoint)}
    tokenizer, cleaning = checkpoint.path_of(TOKENIZER_FILE), checkpoint.card.cleaning or DEFAULT_CLEANING
    has_tokenizer = tf.io.gfile.exists(tokenizer)
    if checkpoint.card.cleaning or has_tokenizer:
        fields[TOKENIZER_CONFIG_FILE] = {
            "tokenizer_class": "XLNetTokenizer",
            **checkpoint.card.external[TOKENIZER_CONFIG_FILE],
            **cleaning.to_hugging_face(),
        }
    written = [*fields, HUGGING_FACE_WEIGHTS[0]]
    for name, values in fields.items():
        files.write(f"{folder}/{name}", json.dumps(values, indent=2, sort_keys=True) + "\n")
    if has_tokenizer:
        try:
            table = XLNetTokenizer(tokenizer).piece_table
        except UserError as error:  # the weights can be converted nevertheless, the file is copied as it is
            logging.warning("%s: no %s is written", error, TOKENIZER_JSON_FILE)
        else:
            written += write_tokenizer_json(folder, table, cleaning)
    return written


def differences(checkpoint: Checkpoint) -> list[str]:
    """Returns how Hugging Face's model with these weights differs from ours, one per line."""
    settings, cleaning = checkpoint.card.settings, checkpoint.card.cleaning
    summary = settings.get("summary")
    heads = _pooled_heads(checkpoint.arrays)
    unread = set(names.heads_without_name(checkpoint.arrays, names.HUGGING_FACE))
    unread |= set(heads) if len(heads) > 1 else set()
    pools_padding = summary in ("first", "mean") and not settings.get("pool_padding")
    everywhere = "lm_bias" in checkpoint.arrays and not settings.get("uniform_when_blind")
    rates = settings.get("dropout"), settings.get("attention_dropout")
    lines = {
        f"its models have no {', '.join(sorted(unread))}: they leave these weights out": unread,
        "its models cannot be built with summary attn": heads and summary == "attn",
        f"its summary {summary} takes in padding: outputs agree for texts without": heads and pools_padding,
        "its models read texts at once, not in segments": settings.get("segment_len"),
        "its bi_data reads the second half of each batch backward; here all texts are read forward": (
            checkpoint.card.external[CONFIG_FILE].get("bi_data")
        ),
        "its one-sided attention fails for batches with masks": settings.get("attention_type") == "uni",
        "a token that may see nothing sees everything there": everywhere,
        "its tokenizers always normalize quotes": cleaning and not cleaning.normalize_quotes,
        "it has no mask_emb: its models begin with a random one, which only language models read": (
            names.QUERY_START not in checkpoint.arrays
        ),
        f"trained further there, attention has dropout {rates[0]}, too, not {rates[1]}": rates[0] != rates[1],
    }
    return [line for line, is_so in lines.items() if is_so]


def _read_files(path: str) -> Arrays:
    if not path.endswith(".index.json"):
        read = read_safetensors if path.endswith(".safetensors") else read_torch_file
        return read(path).checked([path])
    checksums.check(path)
    listed = files.read_json(path).get("weight_map")
    names_of_files = list(listed.values()) if isinstance(listed, dict) else []
    if not names_of_files or not all(map(_is_weight_file, names_of_files)):
        raise UserError(f"{path} lists no files of weights next to it; expected a weight_map.")
    folder = path.rpartition("/")[0] or "."
    entries: dict[str, Entry] = {}
    for file in sorted(set(names_of_files)):
        if not tf.io.gfile.exists(f"{folder}/{file}"):
            raise FileNotFoundError(f"{path} lists {file}, which is not there: fetch or copy it.")
        part = _read_files(f"{folder}/{file}").entries
        expected = {name for name, listed_file in listed.items() if listed_file == file}
        if different := sorted(expected ^ part.keys()):
            raise UserError(
                f"{folder}/{file} has other weights than {path} lists for it ({', '.join(different[:8])}, "
                "...): expected the files of one checkpoint."
            )
        entries |= part
    return Arrays(entries)


def _is_weight_file(name: Any) -> bool:
    return isinstance(name, str) and "/" not in name and name.endswith((".safetensors", ".bin"))


def _pooled_head(values: dict[str, Any], entries: dict[str, Entry]) -> str:
    """Returns our name of the head in logits_proj."""
    for name, type_ in {"architectures": list, "problem_type": str, "finetuning_task": str}.items():
        if not isinstance(values.get(name), (type_, type(None))):
            raise UserError(f"{CONFIG_FILE}: {name} is {values[name]!r}; expected a {type_.__name__}.")
    for task in task_registry.tasks().values():
        if task.hugging_face != _SEQUENCE_MODEL and task.hugging_face in (values.get("architectures") or ()):
            return task.head
    outputs = entries["logits_proj.bias"].shape if "logits_proj.bias" in entries else ()
    default = "regression" if outputs == (1,) else SINGLE_LABEL
    problem = values.get("problem_type") or default
    if outputs and problem not in _PROBLEMS:
        raise UserError(
            f"{CONFIG_FILE}: problem_type is {problem!r}; expected one of {', '.join(_PROBLEMS)}."
        )
    head_kind = problem.rpartition("_")[2]
    return f"{head_kind}_{_head_name(values.get('finetuning_task'))}"


def _head_name(finetuning_task: str | None) -> str:
    """Returns the name of a task's head, without characters that variables' names cannot have."""
    return re.sub(r"[^A-Za-z0-9_.\-]", "-", finetuning_task or NO_TASK)


def _pooled_heads(arrays: Arrays) -> list[str]:
    """Returns the heads that could be logits_proj; when there are several, none is."""
    heads = Arrays(
        {name: entry for name, entry in arrays.entries.items() if names.head_scope(name) != "encoder"}
    )
    external = names.from_canonical(heads, names.HUGGING_FACE)
    return sorted({name.partition(_POOLED_HEAD)[0] for name in external if _POOLED_HEAD in name})


def _may_pool(arrays: Arrays) -> bool:
    """Returns whether a head reads a pooled vector, or is unknown to Hugging Face and might."""
    tasks = map(task_registry.entry_for_scope, map(names.head_scope, arrays))
    return bool(_pooled_heads(arrays)) or any(task and not task.hugging_face for task in tasks)


def _config_fields(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the fields of a config.json: those of one next to the weights, and all that is known."""
    card = checkpoint.card
    inherited = card.external[CONFIG_FILE]
    projection = names.PROJECTION in checkpoint.arrays
    activation = hugging_face_config.write_activation(projection)
    summary = {"summary_use_proj": projection, "summary_activation": activation}
    return {
        **_DEFAULT_FIELDS,
        **(summary if _may_pool(checkpoint.arrays) else {}),
        **{name: inherited[name] for name in inherited.keys() - _FIELDS_OF_WEIGHTS - _FIELDS_OF_HEAD},
        **hugging_face_config.write_config(checkpoint.config),
        **hugging_face_config.write_settings(card.settings),
        **_head_fields(checkpoint),
    }


def _head_fields(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the fields of a config.json about the model class of the heads, and their outputs."""
    arrays = checkpoint.arrays
    scopes, pooled = {names.head_scope(name) for name in arrays}, _pooled_heads(arrays)
    if len(pooled) == 1 and task_registry.entry_for_scope(pooled[0]).hugging_face == _SEQUENCE_MODEL:
        head_kind, _, task = pooled[0].partition("_")
        finetuning_task = checkpoint.card.external[CONFIG_FILE].get("finetuning_task")
        is_same = isinstance(finetuning_task, str) and _head_name(finetuning_task) == task
        classes = MULTI_LABEL if checkpoint.card.multi_label else SINGLE_LABEL
        return {
            "architectures": [_SEQUENCE_MODEL],
            "problem_type": "regression" if head_kind == "regression" else classes,
            "finetuning_task": finetuning_task if is_same else None if task == NO_TASK else task,
            **_label_fields(checkpoint, pooled[0]),
        }
    tasks = task_registry.tasks().values()
    models = {task.head: task.hugging_face for task in tasks if task.hugging_face} | _OTHER_MODELS
    model = next((model for scope, model in models.items() if scope in scopes), "XLNetModel")
    labelled = (*(task.head for task in tasks if task.labels), "span_independent")
    head = next((scope for scope in labelled if scope in scopes), None)
    return {"architectures": [model]} | (_label_fields(checkpoint, head) if head else {})


def _label_fields(checkpoint: Checkpoint, head: str) -> dict[str, Any]:
    """Returns the fields of a config.json about a head's classes and their labels."""
    size = checkpoint.arrays.shapes[f"{head}/logits/bias"][0]
    labels = checkpoint.card.labels_of(head.partition("_")[0]) or ()
    if labels and len(labels) != size:
        logging.warning(
            "the head %s has %d classes, and the files next to it name %d: %s gets no names. Correct "
            "id2label in config.json, or labels in model.json, and convert again",
            head,
            size,
            len(labels),
            CONFIG_FILE,
        )
    named = hugging_face_config.write_labels(labels) if len(labels) == size else {}
    return {"num_labels": size, **named}


def _untie(arrays: Arrays, config: XLNetConfig) -> Arrays:
    """Gives each layer a copy of the tied biases."""
    entries = arrays.entries
    for bias in _BIASES:
        tied = entries.pop(f"tied_biases/{bias}", None)
        if tied:
            entries |= {f"layer_{layer}/attention/{bias}": tied for layer in range(config.n_layer)}
    return Arrays(entries)


def _tie(arrays: Arrays, config: XLNetConfig) -> tuple[Arrays, XLNetConfig]:
    """Ties the biases if all layers have the same; otherwise sets untie_r."""
    entries = arrays.entries
    copies = {
        bias: [f"layer_{layer}/attention/{bias}" for layer in range(config.n_layer)] for bias in _BIASES
    }
    if not all(name in entries for layers in copies.values() for name in layers):
        return arrays, config
    for layers in copies.values():
        first = arrays[layers[0]]
        if not all(np.array_equal(arrays[name], first) for name in layers[1:]):
            return arrays, dataclasses.replace(config, untie_r=True)
    for bias, layers in copies.items():
        entries[f"tied_biases/{bias}"] = entries[layers[0]]
        for name in layers:
            del entries[name]
    return Arrays(entries), config
