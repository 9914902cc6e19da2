"""The models of a server and their versions: which are loaded, and which one answers a request."""

import contextlib
import dataclasses
import os
import shlex
import threading
import types
from collections.abc import Iterator, Mapping, Sequence

from absl import logging
from etils import epath
from google.protobuf import text_format

from xlnet_tf import files
from xlnet_tf.errors import UserError, reason
from xlnet_tf.model_folders import MODEL_FILES, OPENVINO_MODEL, model_file, versions
from xlnet_tf.serving import config_files
from xlnet_tf.serving.local.batching import MAX_BATCH, Batcher
from xlnet_tf.serving.local.protos import CODES, STATES, GetModelStatusResponse, ModelSpec
from xlnet_tf.serving.local.served_model import RequestError, ServedModel, invalid

POLL_SECONDS = 1.0
_END_SECONDS = 1.0  # to wait for a version that is being loaded

State = types.SimpleNamespace(**STATES)


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Which versions of a model's folder to serve."""

    name: str
    folder: str
    newest: int | None = 1  # how many versions to serve; None: all of them
    only: tuple[int, ...] = ()  # the versions to serve; empty: as `newest` says
    labels: Mapping[str, int] = dataclasses.field(default_factory=dict)  # versions by label

    def wanted(self) -> list[int]:
        """Returns the versions to serve that are in the folder, ascending."""
        numbers = [n for n in versions(self.folder) if model_file(f"{self.folder}/{n}")]
        if self.only:
            return [number for number in numbers if number in self.only]
        return numbers if self.newest is None else numbers[-self.newest :]


def of_folder(folder: str) -> ModelConfig:
    """Returns what to serve from an exported model's folder, or from the folder of one version."""
    given = folder.rstrip("/")
    folder = os.path.abspath(folder) if "://" not in folder else given
    if not epath.Path(folder).is_dir():
        raise UserError(f"{folder} is not a folder: expected one that `xlnet-tf export` has written")
    only: tuple[int, ...] = ()
    if model_file(folder):
        folder, version = os.path.split(folder)
        if not version.isdecimal():
            raise UserError(
                f"{folder}/{version} is a model without a version: put it into a folder with a number, "
                f"such as {folder}/{version}/1, and give --model={folder}/{version}"
            )
        only = (int(version),)
    config = ModelConfig(config_files.model_name(folder), folder, only=only)
    if not config.wanted():
        if models := _models_in(folder):
            flags = " ".join(f"--model={shlex.quote(f'{given}/{name}')}" for name in models)
            raise UserError(f"{folder} holds several models, each in a folder of its own: give {flags}")
        raise _no_model(folder)
    return config


def _models_in(folder: str) -> list[str]:
    inside = sorted(path.name for path in epath.Path(folder).iterdir())
    return [name for name in inside if ModelConfig(name, f"{folder}/{name}").wanted()]


def _no_model(folder: str) -> UserError:
    return UserError(
        f"{folder} holds no exported model: expected a version in it, such as {folder}/1/{MODEL_FILES[0]}. "
        f"Trained weights are exported first: xlnet-tf export --model_dir={folder} --output_dir=FOLDER"
    )


def of_config_file(path: str) -> list[ModelConfig]:
    """Reads a models.config of TensorFlow Serving.

    A base_path below a `/models` that does not exist here, as in containers, or a relative one, is resolved
    against the file's folder.
    """
    try:
        from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig
    except ImportError:
        raise UserError("--models_config needs TensorFlow, to be read: give --model=FOLDER") from None
    if not epath.Path(path).exists():
        raise UserError(f"--models_config={path} is not there: expected a models.config, as export writes it")
    try:
        config = text_format.Parse(files.read_text(path), ModelServerConfig())
    except text_format.ParseError as error:
        raise UserError(f"{path} is not a models.config: {error}") from None
    configs = {}
    for model in config.model_config_list.config:
        policy = model.model_version_policy
        only = tuple(policy.specific.versions) if policy.WhichOneof("policy_choice") == "specific" else ()
        newest = None if policy.HasField("all") else policy.latest.num_versions or 1
        if not model.base_path:
            raise UserError(f"{path}: model {model.name!r} has no base_path, the folder of its versions")
        folder = _here(model.base_path, model.name, os.path.dirname(os.path.abspath(path)))
        if not model.name or model.name in configs:
            raise UserError(f"{path} has {'two models' if model.name else 'a model'} called {model.name!r}")
        if model_file(folder):
            raise UserError(
                f"{path}: the base_path of model {model.name!r}, {folder}, is one version: give the folder "
                "that holds it; model_version_policy { specific { versions: NUMBER } } chooses versions"
            )
        if not ModelConfig(model.name, folder).wanted():
            if epath.Path(folder).is_dir() and (models := _models_in(folder)):
                raise UserError(
                    f"{path}: the base_path of model {model.name!r}, {folder}, holds several models: give "
                    f"that of one of them: {', '.join(models)}"
                )
            raise _no_model(folder)
        served = ModelConfig(model.name, folder, newest, only, dict(model.version_labels))
        configs[model.name] = served
        if missing := set(only) - set(served.wanted()):
            raise UserError(
                f"{path}: model {model.name!r} has no version {min(missing)} in {folder}, which has "
                f"{', '.join(map(str, versions(folder)))}"
            )
        for label, number in served.labels.items():
            if number not in served.wanted():
                raise UserError(
                    f"{path}: the label {label!r} of model {model.name!r} stands for version {number}, which "
                    f"is not served, only {', '.join(map(str, served.wanted()))}: change the label or the "
                    "model_version_policy"
                )
    if not configs:
        raise UserError(f"{path} has no models: expected model_config_list {{ config {{ ... }} }}")
    return list(configs.values())


def _here(base_path: str, name: str, folder: str) -> str:
    inside = os.path.basename(os.path.normpath(base_path))
    places = [base_path, os.path.join(folder, inside), folder]
    if "://" in base_path or (os.path.isabs(base_path) and not base_path.startswith("/models/")):
        places = [base_path]
    elif not os.path.isabs(base_path):
        places = [os.path.join(folder, base_path)]
    elif os.path.basename(folder) != inside:
        places.pop()
    for place in places:
        if epath.Path(place).is_dir():
            return place.rstrip("/") if "://" in place else os.path.abspath(place)
    raise UserError(f"model {name!r}: there is no folder {' or '.join(places)}")


@dataclasses.dataclass
class Version:
    """A version of a model."""

    number: int  # its folder's name
    state: int = State.START  # as the API names it
    error: RequestError | None = None  # why it failed to load
    # model, batcher: set once it is available; requests may still hold them after it is unloaded
    model: ServedModel | None = None
    batcher: Batcher | None = None


class Models:
    """All models of a server."""

    def __init__(self, configs: Sequence[ModelConfig], *, together: bool = True, max_batch: int = MAX_BATCH):
        self.configs = {config.name: config for config in configs}
        self._together, self._max_batch = together, max_batch
        self._versions: dict[str, dict[int, Version]] = {name: {} for name in self.configs}
        self._failed: dict[tuple[str, int], frozenset] = {}  # the files that could not be loaded
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None

    def refresh(self) -> None:
        """Loads versions that have appeared, then unloads those that are no longer wanted."""
        for name, config in self.configs.items():
            wanted = config.wanted()
            known = self._versions[name]
            for number in wanted:
                if number not in known or known[number].state == State.END:
                    self._load(config, number)
            available = [n for n in wanted if n in known and known[n].state == State.AVAILABLE]
            for number, version in list(known.items()):
                # While no wanted one can be loaded, those that were served stay.
                if number not in wanted and version.state == State.AVAILABLE and available:
                    self._unload(config, version)

    def watch(self) -> None:
        """Refreshes repeatedly, in a thread, until `close`."""

        def look() -> None:
            while not self._stopped.wait(POLL_SECONDS):
                try:
                    self.refresh()
                except Exception as error:  # such as a file system that does not answer: it may again
                    logging.warning("the models' folders cannot be read: %s", reason(error))

        self._watcher = threading.Thread(target=look)  # no daemon: see batching
        self._watcher.start()

    def close(self) -> None:
        """Answers waiting requests, and unloads everything."""
        self._stopped.set()
        if self._watcher:
            self._watcher.join(_END_SECONDS)
        for name, known in self._versions.items():
            for version in list(known.values()):
                if version.state == State.AVAILABLE:
                    self._unload(self.configs[name], version)

    def available(self) -> Iterator[tuple[str, Version]]:
        """Yields each served version, after its model's name."""
        for name, known in self._versions.items():
            for _, version in sorted(known.items()):
                if version.state == State.AVAILABLE:
                    yield name, version

    def find(self, spec: ModelSpec) -> Version:
        """Returns the served version that answers a request; raises RequestError if there is none."""
        if not spec.name:
            raise invalid("ModelSpec has no name specified.")
        number = self._number(spec)
        known = list(self._versions.get(spec.name, {}).values())  # a list: others load meanwhile
        served = {version.number: version for version in known if version.state == State.AVAILABLE}
        if number is None and served:
            return served[max(served)]
        if number in served:
            return served[number]
        asked = f"Latest({spec.name})" if number is None else f"Specific({spec.name}, {number})"
        raise RequestError("NOT_FOUND", f"Servable not found for request: {asked}")

    def status(self, spec: ModelSpec) -> GetModelStatusResponse:
        """Returns the states of a model's versions, newest first, or of the requested one."""
        number = self._number(spec)
        known = sorted(self._versions.get(spec.name, {}).values(), key=lambda version: -version.number)
        if number is not None:
            known = [version for version in known if version.number == number]
            if not known:
                raise RequestError("NOT_FOUND", f"Could not find version {number} of model {spec.name}")
        if not known:
            raise RequestError("NOT_FOUND", f"Could not find any versions of model {spec.name}")
        response = GetModelStatusResponse()
        for version in known:
            status = response.model_version_status.add(version=version.number, state=version.state)
            code = version.error.code if version.error else "OK"
            status.status.error_code = CODES[code]
            status.status.error_message = str(version.error or "")
        return response

    def _number(self, spec: ModelSpec) -> int | None:
        """Returns the version that a request asks for; None for the newest."""
        if spec.HasField("version"):
            return spec.version.value
        if not spec.version_label:
            return None
        labels = self.configs[spec.name].labels if spec.name in self.configs else {}
        if spec.version_label not in labels:
            raise invalid(f"Unrecognized servable version label: {spec.version_label}")
        return labels[spec.version_label]

    def _load(self, config: ModelConfig, number: int) -> None:
        """Loads a version, unless it failed before and its files have not changed since."""
        folder = f"{config.folder}/{number}"
        fingerprint = frozenset(_states(epath.Path(folder)))
        if self._failed.get((config.name, number)) == fingerprint:
            return
        version = self._versions[config.name][number] = Version(number, State.LOADING)
        model = None
        try:
            model = load(folder)
            model.warm_up()
        except Exception as error:
            self._failed[config.name, number] = fingerprint
            version.error, version.state = RequestError("UNKNOWN", reason(error)), State.END
            if model:
                model.close()
            logging.error("model %s, version %d cannot be served: %s", config.name, number, reason(error))
            return
        if self._stopped.is_set():  # `close` is over, and would not end the threads of a batcher
            model.close()
            version.state = State.END
            return
        version.model = model
        version.batcher = Batcher(model, together=self._together, max_batch=self._max_batch)
        version.state = State.AVAILABLE
        logging.info("model %s, version %d is served", config.name, number)

    def _unload(self, config: ModelConfig, version: Version) -> None:
        version.state = State.UNLOADING
        version.batcher.close()
        version.state = State.END
        del self._versions[config.name][version.number]
        logging.info("model %s, version %d is not served any more", config.name, version.number)


def _states(folder: epath.Path) -> Iterator[tuple]:
    """Yields the state of each file, to detect changes such as a copy in progress."""
    for path in folder.iterdir():
        if path.is_dir():
            yield from _states(path)
        elif "://" in os.fspath(path):
            yield os.fspath(path), (status := path.stat()).length, status.mtime
        else:  # to the nanosecond
            yield os.fspath(path), (status := os.stat(path)).st_size, status.st_mtime_ns


def load(folder: str) -> ServedModel:
    """Loads a version with the runtime that it was exported for."""
    if model_file(folder) == OPENVINO_MODEL:
        from xlnet_tf.serving.local.openvino_model import OpenVinoModel

        return OpenVinoModel(folder)
    from xlnet_tf.serving.local.saved_model import LoadedModel  # here: OpenVINO's models need no TensorFlow

    return LoadedModel(folder)


@contextlib.contextmanager
def serving(models: Models) -> Iterator[Models]:
    """Loads models and watches their folders while the block runs; each must have a loadable version."""
    try:
        models.refresh()
        served = {name for name, _ in models.available()}
        for name in models.configs:
            if name not in served:
                [status, *_] = models.status(ModelSpec(name=name)).model_version_status
                raise UserError(
                    f"{models.configs[name].folder}/{status.version} cannot be loaded: "
                    f"{status.status.error_message}"
                )
        models.watch()
        yield models
    finally:
        models.close()
