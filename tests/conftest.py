"""Fixtures shared by all tests."""

import collections
import ctypes
import fcntl
import functools
import gc
import os
import pathlib
import random
import signal
import sys

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest
from etils.epath import backend, gpath, register

from tests.helpers import (
    fake_hub,
    profiles,  # noqa: F401 (before pytest looks for the profile that it was told)
)

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


# Folders of tests that train or start processes.
SLOW = ("training", "serving", "run_scripts", "tasks", "verification", "models", "generation")
QUICK_COMPILER = "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"


def pytest_configure(config):
    """Heeds Ctrl-C, which a shell lets background commands ignore, so that tests can send it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):  # of the processes, the one that hears of all tests
        config.pluginmanager.register(FileTimes())


def pytest_collection_finish(session):
    """Leaves out what takes longer than it saves; the long tests run as a user's graphs do."""
    if session.config.getoption("--hypothesis-profile") != "long":
        import tensorflow as tf  # not above: the process that only hands out the tests needs none
        from official.modeling.hyperparams import base_config

        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        config = tf.compat.v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        session = tf.compat.v1.Session
        init = functools.partialmethod(session.__init__, config=config)
        tf.compat.v1.Session = type("Session", (session,), {"__init__": init})  # OpenVINO asks for its type
        os.environ.setdefault("XLA_FLAGS", QUICK_COMPILER)
        asked_at_each_assignment = base_config.Config._get_annotations.__func__
        base_config.Config._get_annotations = classmethod(functools.cache(asked_at_each_assignment))
        gc.freeze()  # Python would look through all modules again and again, 8 % of the tests' time
        gc.set_threshold(50_000, 20, 20)


class FileTimes:
    """Adds up the seconds of each file's tests, and prints those that took longest."""

    def __init__(self):
        self.seconds = collections.Counter()

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.section(f"seconds by file, {self.seconds.total():,.0f} in all")
        for file, seconds in self.seconds.most_common(25):
            terminalreporter.line(f"{seconds:8.1f}  {file}")


def pytest_collection_modifyitems(items):
    """Puts the files that take longest first: none of two processes has to wait at the end for the other."""
    items.sort(key=lambda item: not is_slow(item.path))


def is_slow(path: pathlib.Path) -> bool:
    return path.relative_to(REPOSITORY / "tests").parts[0] in SLOW


@pytest.fixture(autouse=True)
def _forgotten_gradients():
    """Frees what a test has traced: TensorFlow keeps each tf.custom_gradient of a graph, and so the graph."""
    ops = sys.modules.get("tensorflow.python.framework.ops")
    registry = ops.gradient_registry._registry if ops else {}
    known = set(registry)
    yield
    traced = [name for name in registry if name.startswith("CustomGradient-") and name not in known]
    for name in traced:
        del registry[name]
    if traced:
        gc.collect()


@pytest.fixture(autouse=True, scope="module")
def _collected(request):
    """Ends what trained in a file while it is young: the end of an old iterator waits, up to a minute."""
    yield
    if is_slow(request.path):
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # else a process keeps gigabytes that no test uses any more


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """Returns a function that has a folder made once for all processes of a run of the tests."""
    root = tmp_path_factory.getbasetemp()
    root = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "made_once"
    root.mkdir(exist_ok=True)

    def make(name: str, write) -> pathlib.Path:
        """`write` is called with the folder, which tests only read then."""
        with open(root / f"{name}.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.fstat(lock.fileno()).st_size:  # as it is now: another process may have written
                (root / name).mkdir()
                write(root / name)
                lock.write("made")
        return root / name

    return make


@pytest.fixture
def eagerly():
    """Runs graphs' functions step by step: for few steps, tracing takes longer."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def bucket(monkeypatch, request):
    """A folder as in gs://, which TensorFlow and epath read and Python's own functions do not."""
    monkeypatch.setattr(gpath, "_URI_PREFIXES", (*gpath._URI_PREFIXES, "ram://"))
    monkeypatch.setattr(gpath, "_URI_SCHEMES", {*gpath._URI_SCHEMES, "ram"})
    monkeypatch.setitem(gpath._URI_MAP_ROOT, "ram://", "/ram/")
    monkeypatch.setitem(gpath._PREFIX_TO_BACKEND, "ram", backend.tf_backend)
    monkeypatch.setitem(register._URI_PREFIXES_TO_CLS, "ram://", gpath.PosixGPath)
    return f"ram://{request.node.name}"


@pytest.fixture
def model_hub(monkeypatch, tmp_path):
    """An empty Hugging Face hub on this machine, which huggingface_hub asks, and an empty cache."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="needs the extra hub")
    with fake_hub.serving() as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.url)
        address = f"{served.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield served


@pytest.fixture
def shared():
    """Returns a function that finds a file of the `shared` folder next to the checkout, or skips."""

    def find(relative: str) -> pathlib.Path:
        path = REPOSITORY.parent / "shared" / relative
        if not path.exists():
            pytest.skip(f"shared/{relative} is not here")
        return path

    return find


@pytest.fixture
def golden():
    """Returns a function that gives the path of a numeric fixture in tests/golden."""

    def find(relative: str) -> pathlib.Path:
        return REPOSITORY / "tests" / "golden" / relative

    return find


def invent_texts(count, seed=0):
    """Invents sentences with words, numbers and commas."""
    rng = random.Random(seed)
    syllables = ["ba", "ne", "tor", "mi", "kal", "su", "ren", "do"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 3))) for _ in range(60)]
    words += [f"{number}," for number in (5, 12, 1999, 2008)] + [f"{word}," for word in words[:10]]
    return [" ".join(rng.choices(words, k=rng.randint(3, 20))) + "." for _ in range(count)]


@pytest.fixture(scope="session")
def small_tokenizer():
    """A tokenizer of 90 pieces for the words of `invent_texts`."""
    from xlnet_tf.text.training import train_tokenizer

    return train_tokenizer(invent_texts(600), 90)
