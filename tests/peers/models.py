"""Prints who reads our files and whose files we read, and who answers alone as in a batch."""

import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.peers import reading, rows
from tests.peers.environments import REPOSITORY, Environment, log
from tests.peers.reading import Check, Ours

Row = list[str]


class Peer(NamedTuple):
    """A library.

    Attributes:
        name: with "{}" for the version of `package`.
        packages, ours: see Environment.
        checks: of an environment, our files and an empty folder, what is compared.
        program: a file of programs/ whose `batched` answers rows alone and in a batch; "": none.
    """

    name: str
    package: str
    packages: Sequence[Sequence[str]]
    checks: Callable[[Environment, Ours, str], Iterator[Check]]
    ours: bool = False
    program: str = ""


_LIGHT = ["-r", str(REPOSITORY / "deploy/openvino/requirements.txt")]
_REQUIREMENTS = ["-r", str(REPOSITORY / "requirements.txt")]
_TF_2_21 = ["tensorflow==2.21.0", "tensorflow-text==2.21.1", "tf_keras==2.21.0"]
_PINNED = "TensorFlow {}, TensorFlow Text 2.21.1 and tf_keras 2.21.0"
_TRANSFORMERS = ["transformers", "torch", "sentencepiece", "protobuf"]
_KERAS_HUB = ["keras-hub", "jax", "safetensors"]
_NEWEST = [_LIGHT, ["-U", "sentencepiece", "protobuf", "pyarrow"]]
PEERS = (
    Peer("transformers {}", "transformers", [_TRANSFORMERS], reading.transformers, program="hugging_face"),
    Peer("KerasHub {}", "keras-hub", [_KERAS_HUB], reading.keras_hub, program="keras_hub"),
    Peer("Model Garden {}", "tf-models-official", [["tf-models-official"]], reading.model_garden,
         program="model_garden"),
    Peer(_PINNED, "tensorflow", [_REQUIREMENTS, _TF_2_21], reading.tensorflow, ours=True),
    Peer("sentencepiece {}", "sentencepiece", _NEWEST, reading.sentencepiece, ours=True),
    Peer("openvino {}", "openvino", [_LIGHT], reading.openvino, ours=True),
)  # fmt: skip


def tables(only: str, environments: str = "") -> tuple[list[Row], list[Row]]:
    """Returns the tables, each with its head; environments stay in a folder if one is given."""
    files = [["library", "file", "read by", "largest difference"]]
    batched = [["library", "what", "rows the same", "largest difference", "of other texts"], *rows.of_ours()]
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        ours = Ours(folder)
        for peer in PEERS:
            if only in peer.name:
                scratch = pathlib.Path(folder, f"for-{peer.package}")
                env_folder = pathlib.Path(environments or scratch, f"env-{peer.package}")
                _add_rows(peer, ours, env_folder, scratch, files, batched)
                shutil.rmtree(scratch)
    return files, batched


def _add_rows(peer: Peer, ours: Ours, env_folder: pathlib.Path, scratch: pathlib.Path, files: list[Row],
              batched: list[Row]) -> None:  # fmt: skip
    log(peer.name)
    scratch.mkdir()
    try:
        env = Environment(env_folder, *peer.packages, ours=peer.ours)
    except (OSError, subprocess.SubprocessError) as error:
        files.append([peer.name, "", "", _failure(error)])
        return
    name = peer.name.format(env.version(peer.package))
    for file, reader, difference in peer.checks(env, ours, str(scratch)):
        try:
            cell = f"{difference():.1g}"
        except Exception as error:  # whatever a library raises is a cell of the table
            cell = _failure(error)
        files.append([name, file, reader, cell])
        log(str(files[-1]))
    if peer.program:
        for label, answers in env.call(peer.program, "batched", batches=rows.batches()).items():
            batched.append([name, label, *rows.compare(answers)])
            log(str(batched[-1]))


def _failure(error: Exception) -> str:
    return f"fails: {str(error)[:150]}"
