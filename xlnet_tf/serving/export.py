"""Writes versions of served models: SavedModels for TensorFlow Serving, or graphs for OpenVINO."""

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from xlnet_tf import files, folders
from xlnet_tf.errors import UserError
from xlnet_tf.model_folders import OPENVINO_MODEL, SAVED_MODEL, versions
from xlnet_tf.model_folders import model_file as find_model_file
from xlnet_tf.ownership import folder_lease
from xlnet_tf.serving import config_files
from xlnet_tf.serving.graph.exported_model import ExportableModel
from xlnet_tf.serving.openvino import version_files
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
        UserError: the version exists, a number or the folder's name is wrong, the folder has versions for
            another runtime, or existing settings do not fit the warm-up batches.
    """
    folder = folder.rstrip("/")
    with _new_version(folder, version, SAVED_MODEL) as (target, unfinished):
        _check_batches(folder, warmup_batches)
        _save(module, unfinished)
        module.card.write(unfinished)
        write_warmup(unfinished, module.example_inputs(), module.METHODS, warmup_batches)
        files.write(f"{unfinished}/{BUCKETS_FILE}", json.dumps(module.buckets))
        # Requests with different numbers of options or candidates cannot be put together.
        one_number = all(spec.shape.rank == 1 for spec in module.input_specs().values())
        config_files.write(folder, warmup_batches, batching=one_number)
        config_files.write_monitoring(folder)
    return target


def export_openvino(
    module: ExportableModel,
    folder: str,
    weights: str,
    *,
    version: int | None = None,
    calibration_data: str | None = None,
    check: Callable[[str], None] = lambda path: None,
) -> str:
    """Writes a version that answers without TensorFlow, with the files of openvino/version_files.py.

        FOLDER/config.json, compose.yaml    settings of OpenVINO Model Server

    `check` may raise UserError against the new version's folder; for others see `export`, `write_version`.
    """
    folder = folder.rstrip("/")
    with _new_version(folder, version, OPENVINO_MODEL) as (target, unfinished):
        version_files.write_version(module, unfinished, weights, calibration_data)
        check(unfinished)
        config_files.write_openvino(folder, weights)
    return target


@contextlib.contextmanager
def _new_version(folder: str, version: int | None, model_file: str) -> Iterator[tuple[str, str]]:
    """Yields the folder of a version whose runtime loads `model_file`, and one to write its files to first.

    The latter becomes the version when the block ends, or vanishes with an error. Raises UserError if there
    can be no such version.
    """
    _check_folder(folder)
    folders.claim(folder, folders.EXPORT, flag="--output_dir")
    tf.io.gfile.makedirs(folder)
    with folder_lease(folder, "exporting", "--output_dir") as owner:
        there = versions(folder)
        # A server loads the newest version, whatever it is.
        others = [
            number for number in there if find_model_file(f"{folder}/{number}") not in (None, model_file)
        ]
        if others:
            raise UserError(
                f"{folder} has versions for another runtime ({', '.join(map(str, others))}), and servers "
                "load the newest one: choose another --output_dir"
            )
        if version is None:
            version = 1 + max(there, default=0)
        if version < 1 or version in there:
            raise UserError(
                f"version {version} cannot be written to {folder}, which has "
                f"{', '.join(map(str, there)) or 'none'}: give another number from 1 on"
            )
        target, unfinished = f"{folder}/{version}", f"{folder}/unfinished-{version}"
        if tf.io.gfile.exists(unfinished):
            tf.io.gfile.rmtree(unfinished)
        try:
            yield target, unfinished
        except BaseException:
            if tf.io.gfile.exists(unfinished):
                tf.io.gfile.rmtree(unfinished)
            raise
        owner.check()
        tf.io.gfile.rename(unfinished, target)


def _check_folder(folder: str):
    config_files.model_name(folder)
    parts = folder.split("/")
    for parent in ("/".join(parts[:count]) for count in range(1, len(parts) + 1)):
        if parent and tf.io.gfile.exists(parent) and not tf.io.gfile.isdir(parent):
            raise UserError(f"{parent} is a file; expected a folder for the versions of the model")


def _check_batches(folder: str, warmup_batches: Sequence[int]):
    """Raises UserError for problems that would otherwise appear only after the work is done."""
    batches = list(warmup_batches)
    if not batches or batches != sorted(set(batches)) or not 1 <= batches[0] <= batches[-1] <= MAX_BATCH:
        raise UserError(f"warm-up batches are {batches}; expected ascending numbers from 1 to {MAX_BATCH}")
    config_files.check_limit(folder, max(warmup_batches))


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
