"""Rows of named data sets: of the Hugging Face hub and of TensorFlow Datasets.

    hf://datasets/OWNER/NAME[:CONFIG][@REVISION]/SPLIT      needs `datasets`, the extra of that name
    tfds://NAME[/CONFIG][:VERSION]/SPLIT                    prepared with `tfds build`
    tfds://FOLDER/SPLIT                                     a prepared folder, which has a features.json

Class numbers are replaced by names. TensorFlow Datasets never downloads anything here. What the hub cannot
provide is an error, unless HF_HUB_OFFLINE=1 asks for earlier downloads.
"""

import functools
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from tfrecord_builders.common.columnar import part_features, rows_of_batch, undecodable, with_names
from tfrecord_builders.common.rows import DecodedValues, LabelledRow, as_text
from xlnet_tf import hub
from xlnet_tf.errors import UserError, install_command

HUB, PREPARED = "hf://datasets/", "tfds://"
EXTRA = "datasets"
HUB_NAME = re.compile(
    rf"{HUB}(?P<name>(?:[\w.-]+/)?[\w.-]+)(?::(?P<config>[\w.-]+))?(?:@(?P<revision>[\w.-]+))?"
    r"/(?P<split>[^/]+)"
)
_BATCH_ROWS = 256


def is_name(source: str | os.PathLike) -> bool:
    return os.fspath(source).startswith((HUB, PREPARED))


def check(name: str) -> None:
    """Opens a split of a data set, downloading it if needed; raises UserError if that fails."""
    _on_hub(name) if name.startswith(HUB) else _prepared(name)


def read(name: str) -> Iterator[LabelledRow]:
    return _hub_rows(name) if name.startswith(HUB) else _prepared_rows(name)


def _hub_rows(name: str) -> Iterator[LabelledRow]:
    split, number = _on_hub(name), 1
    features = split.features.to_dict()
    for batch in split.with_format("arrow").iter(_BATCH_ROWS):
        yield from rows_of_batch(batch, features, name, number)
        number += batch.num_rows


@functools.lru_cache(maxsize=8)
def _on_hub(name: str) -> Any:
    match = HUB_NAME.fullmatch(name)
    if not match:
        raise UserError(
            f"{name} is not the name of a split: expected {HUB}OWNER/NAME[:CONFIG][@REVISION]/SPLIT, such as "
            f"{HUB}nyu-mll/glue:sst2/train"
        )
    try:
        import datasets
    except ImportError:
        raise UserError(
            f"{name} is a data set of the Hugging Face hub; what reads it is not installed: "
            f"{install_command(EXTRA)}"
        ) from None
    datasets.disable_progress_bars()
    # The commit is asked for first, so that an old copy never stands for what the hub cannot give.
    commit = hub.commit_of_data_set(match["name"], match["revision"])
    try:
        return datasets.load_dataset(match["name"], match["config"], split=match["split"], revision=commit)
    except Exception as error:  # the library's own, of its builders and of the network
        raise UserError(f"{name} cannot be read: {' '.join(str(error).split())}") from error


def _prepared_rows(name: str) -> Iterator[LabelledRow]:
    import tensorflow_datasets as tfds

    builder, split = _prepared(name)
    features = _described(builder.info.features)
    examples = builder.as_dataset(
        split=split, read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    )
    for number, example in enumerate(tfds.as_numpy(examples), 1):
        paths = dict(_paths(example))

        def decode(column: str, number: int = number, example: Any = example, paths: Any = paths) -> Any:
            value, described = example, features
            for part in paths[column]:
                value, described = value[part], part_features(described, part)
            try:
                return as_text(with_names(_plain(value), described))
            except Exception as error:
                raise UserError(f"{name}, row {number}: {column!r} {undecodable(error)}") from None

        yield LabelledRow(DecodedValues(paths, decode), name, number, numbered=True)


def _paths(example: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the names of an example's columns and of their parts, and the path to each."""
    for name, value in example.items():
        path = (*above, name)
        yield ".".join(path), path
        if isinstance(value, Mapping):
            yield from _paths(value, path)


@functools.lru_cache(maxsize=8)
def _prepared(name: str) -> tuple[Any, str]:
    """Returns a builder of TensorFlow Datasets and the split."""
    import tensorflow_datasets as tfds

    data_set, slash, split = name.removeprefix(PREPARED).rpartition("/")
    if not (slash and data_set and split):
        raise UserError(
            f"{name} is not the name of a split: expected {PREPARED}NAME[/CONFIG][:VERSION]/SPLIT or "
            f"{PREPARED}FOLDER/SPLIT, such as {PREPARED}glue/sst2/train"
        )
    if (epath.Path(data_set) / "features.json").exists():
        builder = tfds.builder_from_directory(data_set)
    else:
        builder = prepared_builder(data_set)
    if split.partition("[")[0] not in builder.info.splits:
        raise UserError(
            f"{builder.info.full_name} has the splits {', '.join(builder.info.splits)}, and no {split!r}: "
            "name one of them"
        )
    return builder, split


def prepared_builder(name: str, data_dir: str = "", advice: str = "the name, and TFDS_DATA_DIR") -> Any:
    """Opens a prepared data set of TensorFlow Datasets; nothing is downloaded.

    data_dir "" is TensorFlow Datasets' own folder; `advice` says what to check if there is no such data set.
    """
    import tensorflow_datasets as tfds

    where = data_dir or "TensorFlow Datasets' own folder"
    try:
        builder = tfds.builder(name, data_dir=data_dir or None)
    except tfds.core.registered.DatasetNotFoundError:
        raise UserError(
            f"{where} has no data set {name!r}, and TensorFlow Datasets knows none: check {advice}"
        ) from None
    except (ValueError, RuntimeError) as error:
        raise UserError(f"the data set {name!r} cannot be opened: {error}") from None
    if not builder.info.splits:
        raise UserError(
            f"{where} has no prepared {name!r}: prepare it first, with `tfds build {name}` or "
            "tfds.builder(...).download_and_prepare()"
        )
    return builder


def _described(feature: Any) -> Any:
    """Converts a feature of TensorFlow Datasets to the description of `datasets`: see columnar.with_names."""
    import tensorflow_datasets as tfds

    if isinstance(feature, tfds.features.FeaturesDict):
        return {name: _described(inner) for name, inner in feature.items()}
    if isinstance(feature, tfds.features.ClassLabel):
        return {"_type": "ClassLabel", "names": feature.names}
    if isinstance(feature, tfds.features.Sequence):
        return {"_type": "Sequence", "feature": _described(feature.feature)}
    return {"_type": "Value"}


def _plain(value: Any) -> Any:
    """Converts numpy's values to Python's."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, bytes):
        return value.decode()
    if hasattr(value, "to_list"):  # ragged
        return _plain(value.to_list())
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return [_plain(item) for item in value] if isinstance(value, list) else value
