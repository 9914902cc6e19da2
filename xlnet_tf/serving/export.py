"""Writes SavedModels for TensorFlow Serving."""

import json
import os
import tempfile
from collections.abc import Sequence

import tensorflow as tf

from xlnet_tf import files, folders
from xlnet_tf.errors import UserError
from xlnet_tf.model_folders import versions
from xlnet_tf.ownership import Ownership, folder_lease
from xlnet_tf.serving import config_files
from xlnet_tf.serving.graph.exported_model import ExportableModel
from xlnet_tf.serving.warmup import BUCKETS_FILE, write_warmup
from xlnet_tf.text.vocabulary import TOKENIZER_FILE

WARMUP_BATCHES = (1, 8)
MAX_BATCH = 1 << 16  # rows of a request, which is made as a whole


def export(
    module: ExportableModel,
    folder: str,
    *,
    version: int | None = None,
    warmup_batches: Sequence[int] = WARMUP_BATCHES,
) -> str:
    """Writes a version of a served model.

        FOLDER/VERSION/saved_model.pb, variables/   the graph and its weights
        FOLDER/VERSION/model.json                   the model card
        FOLDER/VERSION/assets/spiece.model          the tokenizer; the graph holds its own copy
        FOLDER/VERSION/assets.extra/                requests that the server warms up with; buckets.json
        FOLDER/models.config, batching.config       settings of the server
        FOLDER/monitoring.config, compose.yaml, monitoring/    see config_files.write_monitoring

    A version appears whole: a server that watches the folder never loads a half of it.

    Args:
        folder: the model's folder; its last part is the model's name.
        version: None: the one after the newest.
        warmup_batches: sizes of batches to warm up with, ascending, which the server also pads batches to.

    Raises:
        UserError: the version exists, a number or the folder's name is wrong, or existing settings do not fit
            the warm-up batches.
    """
    folder = folder.rstrip("/")
    _check_folder(folder)
    folders.claim(folder, folders.EXPORT, flag="--output_dir")
    tf.io.gfile.makedirs(folder)
    with folder_lease(folder, "exporting", "--output_dir") as owner:
        if version is None:
            version = 1 + max(versions(folder), default=0)
        _check(folder, version, warmup_batches)
        return _export(module, folder, version, warmup_batches, owner)


def _export(
    module: ExportableModel, folder: str, version: int, warmup_batches: Sequence[int], owner: Ownership
) -> str:
    target, unfinished = f"{folder}/{version}", f"{folder}/unfinished-{version}"
    if tf.io.gfile.exists(unfinished):
        tf.io.gfile.rmtree(unfinished)
    try:
        _save(module, unfinished)
        module.card.write(unfinished)
        write_warmup(unfinished, module.example_inputs(), module.METHODS, warmup_batches)
        files.write(f"{unfinished}/{BUCKETS_FILE}", json.dumps(module.buckets))
        # Requests with different numbers of options or candidates cannot be put together.
        one_number = all(spec.shape.rank == 1 for spec in module.input_specs().values())
        config_files.write(folder, warmup_batches, batching=one_number)
        config_files.write_monitoring(folder)
    except BaseException:
        if tf.io.gfile.exists(unfinished):
            tf.io.gfile.rmtree(unfinished)
        raise
    owner.check()
    tf.io.gfile.rename(unfinished, target)
    return target


def _check_folder(folder: str):
    """Raises UserError if this cannot be the folder of a model."""
    config_files.model_name(folder)
    parts = folder.split("/")
    for parent in ("/".join(parts[:count]) for count in range(1, len(parts) + 1)):
        if parent and tf.io.gfile.exists(parent) and not tf.io.gfile.isdir(parent):
            raise UserError(f"{parent} is a file; expected a folder for the versions of the model")


def _check(folder: str, version: int, warmup_batches: Sequence[int]):
    """Raises UserError for problems that would otherwise appear only after the work is done."""
    batches = list(warmup_batches)
    if not batches or batches != sorted(set(batches)) or not 1 <= batches[0] <= batches[-1] <= MAX_BATCH:
        raise UserError(f"warm-up batches are {batches}; expected ascending numbers from 1 to {MAX_BATCH}")
    config_files.check_limit(folder, max(warmup_batches))
    if version < 1 or version in versions(folder):
        raise UserError(
            f"version {version} cannot be written to {folder}, which has "
            f"{', '.join(map(str, versions(folder))) or 'none'}: give another number from 1 on"
        )


def _save(module: ExportableModel, path: str):
    with files.writing(path), tempfile.TemporaryDirectory() as temporary:
        tokenizer_file = os.path.join(temporary, TOKENIZER_FILE)
        files.write(tokenizer_file, module.tokenizer.model_proto)
        module.tokenizer_file = tf.saved_model.Asset(tokenizer_file)
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(module, path, signatures=module.signatures(), options=options)
        if module.METHODS:
            # Methods of TensorFlow Serving's own APIs, which saving does not know.
            updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(path)
            for name, method in module.METHODS.items():
                updater.replace_method_name(name, method)
            updater.save()
