"""Writes docs/reference/ from the code: flags, settings, record layouts and served signatures.

python -m tests.docs.generators.reference
"""

import dataclasses
import fnmatch
import inspect
import json
import pathlib
import re
import runpy
import sys
import unittest.mock
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from tests.helpers.command_flags import fresh_flags

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "docs/reference"
NOTE = "<!-- Written by `make reference` from the code: change it there. -->\n"
_SECTIONS = "Args|Attributes|Returns|Yields|Raises|Call args|Call returns|Signatures|Example|Source"
_SECTION = re.compile(rf"^({_SECTIONS})( \([^\n]*\))?:[ \n]", re.MULTILINE)
_ENTRY = re.compile(r"(?m)^    (\*{0,2}[\w*]+(?:, \*{0,2}\w+)*): ")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table; pipes in cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def sections(docstring: str) -> dict[str, str]:
    """Returns the parts of a docstring by title; "" is what stands before the first of them."""
    parts = _SECTION.split(inspect.cleandoc(docstring or "") + "\n")
    return {"": parts[0], **dict(zip(parts[1::3], parts[3::3]))}


def entries(text: str) -> list[tuple[str, str]]:
    """Returns the names that a section describes, each with its text."""
    parts = _ENTRY.split("    " + text.strip() if not text.startswith(" ") else text)
    return [(names, " ".join(meaning.split())) for names, meaning in zip(parts[1::2], parts[2::2])]


def meanings(text: str) -> dict[str, str]:
    """Returns the text of each single name of a section."""
    return {name: meaning for names, meaning in entries(text) for name in names.split(", ")}


def prose(text: str) -> str:
    """Returns text of a docstring as Markdown: what is indented are code blocks, which do not run."""
    parts = []
    for paragraph in re.split(r"\n{2,}", text.strip("\n")):
        if not re.search(r"^ ", paragraph, re.MULTILINE):
            parts.append(_literal(paragraph))
            continue
        kept = re.match(r"(?:\S.*\n)*", paragraph + "\n")[0]
        code = inspect.cleandoc("\n" + paragraph[len(kept) :])
        if kept:
            parts.append(_literal(kept.rstrip("\n")))
        parts.append(f"```text\n{code}\n```")
    return "\n\n".join(parts)


def _literal(text: str) -> str:
    """Marks flags, paths and names as code, so that Markdown reads no emphasis or HTML into them."""
    parts = re.split(r"(`[^`]*`)", text)
    word = (
        r"(?<![\w`/.-])(--[\w=.*-]*\w|<\w+>|(?:[\w.-]+/)+(?![\w/])|(?:[\w.-]+/)+[\w*-]+\.\w+|\w+\.(?:py|md|json|yaml)"
        r"|[\w/]+\*[\w/.*]*|\*+[\w/.][\w/.*]*)(?![\w`])"
    )
    return "".join(part if part.startswith("`") else re.sub(word, r"`\1`", part) for part in parts)


# Commands.


def commands() -> str:
    """Returns the page of all commands and their flags."""
    from run_scripts import __main__ as program

    text = [
        "# Commands and flags\n\n" + NOTE,
        "Every command is part of the program `xlnet-tf`. `xlnet-tf COMMAND --help` prints what this page "
        "says of it.\n",
    ]
    known = program.commands()
    for title, patterns in program.GROUPS.items():
        text.append(f"## {title}\n")
        for pattern in patterns:
            for name in fnmatch.filter(known, pattern):
                text.append(_command(name, known.pop(name), program.spelled))
    return "\n".join(text)


def _command(name: str, module: str, spelled: Callable[[str], str]) -> str:
    docstring, rows = described_flags(module)
    text = f"### xlnet-tf {name}\n\n{prose(spelled(docstring))}\n"
    if rows:
        text += "\n" + table(
            ("flag", "meaning"),
            [(re.sub(r"--[\w\[\]]+", r"`\g<0>`", flag), _literal(text)) for flag, text in rows],
        )
    return text


def described_flags(module: str) -> tuple[str, list[tuple[str, str]]]:
    """Returns a command's docstring and its flags with their help, as --help shows them."""
    from xlnet_tf import errors
    from xlnet_tf.cli import command_line

    found = []

    def run(_, positional=None, **_options):
        found.append(sys.modules["__main__"].__doc__)
        found.extend(command_line.described(flags.FLAGS))

    patched = unittest.mock.patch.object
    with (
        fresh_flags(),
        patched(errors, "run", run),
        patched(sys, "argv", [module]),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", RuntimeWarning)  # the module may have been imported before
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    docstring, *rows = found
    return docstring, rows


# Settings.


def settings() -> str:
    """Returns the page of the settings that files and --params_override take."""
    from official.core import exp_factory

    from run_scripts import finetune, pretrain
    from xlnet_tf import task_registry
    from xlnet_tf.tasks.pretraining import task as pretraining

    experiments = {"pretraining": (pretraining.EXPERIMENT, pretrain.SETTINGS)}
    for name, entry in task_registry.tasks().items():
        experiments[name] = entry.experiment, (*finetune.SETTINGS, *entry.settings)
    defaults = {
        name: _fields(exp_factory.get_exp_config(key), {flag.field: flag.help for flag in of_flags})
        for name, (key, of_flags) in experiments.items()
    }
    text = [
        "# Settings\n\n" + NOTE,
        "A recipe is a yaml file of these settings, given as `--config_file`; "
        "`--params_override=trainer.train_steps=100` sets single ones. "
        "[Commands](commands.md) has the flags for the usual ones. "
        "Settings that TensorFlow Model Garden defines and this project does not read are left out.\n",
    ]
    shared = [path for path, value in defaults["pretraining"].items() if all(
        path in others and others[path][0] == value[0] for name, others in defaults.items()
    )]  # fmt: skip
    text.append("## All runs\n\n" + _settings_table({path: defaults["pretraining"][path] for path in shared}))
    for name, fields in defaults.items():
        own = {path: value for path, value in fields.items() if path not in shared}
        text.append(f"## {name.replace('_', ' ').capitalize()}\n\n" + _settings_table(own))
    return "\n".join(text)


def _settings_table(fields: Mapping[str, tuple[Any, str]]) -> str:
    rows = [
        (f"`{path}`", f"`{json.dumps(value)}`", _literal(text))
        for path, (value, text) in sorted(fields.items())
    ]
    return table(("setting", "default", "meaning"), rows)


def _fields(config: Any, helps: Mapping[str, str], prefix: str = "") -> dict[str, tuple[Any, str]]:
    """Returns the fields that our docstrings or flags' `helps` describe, by path: default and meaning."""
    known = {}
    for cls in reversed(type(config).__mro__):
        if cls.__module__.startswith("xlnet_tf"):
            known |= meanings(sections(cls.__doc__).get("Attributes", ""))
    found = {}
    for field in dataclasses.fields(config):
        value, path = getattr(config, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            found |= _fields(value, helps, f"{path}.")
        elif meaning := known.get(field.name) or helps.get(path):
            found[path] = value, meaning
    return found


# Records.


def records() -> str:
    """Returns the page of the layout of records and manifests."""
    from xlnet_tf import task_registry
    from xlnet_tf.records import examples, manifest
    from xlnet_tf.records.spec import RecordSpec

    text = [
        "# Records and manifests\n\n" + NOTE,
        "A set is a folder of TFRecord files with a `manifest.json`. Every record is a `tf.train.Example`. "
        "Each feature is one `bytes` value of fixed size: little-endian numbers of the type below. So all "
        "records of a set have the same size. Lengths here are those of T = 512 tokens, P = 85 targets, "
        "32,000 pieces, 4 options or candidates and 3 labels.\n",
        "## A pretraining record\n\n" + _columns(RecordSpec(512, 256, 85, 32000).columns),
    ]
    sizes = task_registry.Sizes(seq_len=512, num_labels=3, sequences=4)
    for name, entry in task_registry.tasks().items():
        length = sizes.seq_len * (sizes.sequences if entry.sequences is None else entry.sequences)
        columns = examples.sequence_columns(length, 32000) + tuple(entry.load("synthetic")(sizes)[0])
        text.append(f"## An example of {name.replace('_', ' ')}\n\n" + _columns(columns))
    text.append("## The manifest of pretraining records\n\n" + _described_fields(manifest.Manifest))
    text.append("### One of its shards\n\n" + _described_fields(manifest.Shard))
    text.append("## The manifest of a set of examples\n\n" + _described_fields(examples.ExampleSet))
    return "\n".join(text)


def _columns(columns: Sequence[Any]) -> str:
    rows = [
        (f"`{column.name}`", column.dtype, column.length or "scalar", COLUMNS[column.name])
        for column in columns
    ]
    return table(("feature", "type", "length", "meaning"), rows)


def _described_fields(cls: type) -> str:
    """Returns a table of a dataclass' fields, whose meanings its docstring or FIELDS has."""
    of_docstring = sections(cls.__doc__)
    known = FIELDS | meanings(of_docstring.get("Attributes", of_docstring.get("Args", "")))
    names = [field.name for field in dataclasses.fields(cls) if field.name != "folder"]
    rows = [(f"`{name}`", _literal(known[name])) for name in names]
    return table(("field", "meaning"), rows)


COLUMNS = {
    "input_ids": "piece ids",
    "segment_ids": "0: first text, 1: second text, 2: CLS; padding of examples is 3",
    "permutation_rank": "place of each token in the factorization order",
    "target_positions": "positions of the targets, ascending, then -1 for empty slots",
    "direction": "1: the text is read forward, -1: backward",
    "next_sentence": "1: B continues A, 0: B comes from elsewhere",
    "stream": "id of the stream, unique in the set",
    "segment": "index of this segment in its stream",
    "document_offset": "tokens of this document that come before, within the stream",
    "index": "number of the example in its set",
    "label": "index of the label or of the right option; of regression the value",
    "answer_mask": "1: a token that an answer may begin or end at",
    "is_impossible": "1: the passage does not answer the question",
    "answer_first": "position of the answer's first token",
    "answer_last": "position of its last token",
    "tags": "index of each word's tag at its first piece; -1 elsewhere",
    "relevance": "how relevant each candidate is",
}
FIELDS = {
    "schema_version": "version of these fields",
    "kind": "`pretraining` or `examples`",
    "split": "`train`, `dev`, ...",
    "ties": "the rule by which the tokenizer breaks ties between pieces",
    "corpus": "files of the corpus, with size and checksum",
    "tokenizer": "file, sha256, vocabulary size and special ids of the tokenizer",
    "cleaning": "how text was cleaned",
    "use_eod": "whether documents end with `<eod>`",
    "sentence_split": "language by whose rules lines were split into sentences; empty: they were not",
    "seq_len": "T, tokens of a segment",
    "reuse_len": "leading tokens of a segment that later segments remember",
    "num_predict": "P, slots for targets",
    "perm_size": "tokens that are permuted together",
    "objective": "`permutation`, `denoising` or `autoregressive`",
    "functional_tokens": "`ordered`: SEP and CLS are in the order; `context`: visible from the start",
    "mask": "how targets are chosen: alpha, beta, span mode and longest span",
    "directions": "in which directions the text is read",
    "num_passes": "passes over the corpus, each with its own orders and targets",
    "stream_segments": "segments of a stream, at most",
    "slice_bytes": "bytes of text of a job, at most",
    "seed": "random seed of orders, targets and pairs",
    "compat": "whether the original's sampling was used",
    "record_bytes": "bytes of a record",
    "dtypes": "type of each feature",
    "documents": "how documents were separated and chosen",
    "shards": "the files, see below",
    "statistics": "counts for people: documents, tokens, what was dropped and why",
    "sidecar_sha256": "sha256 of `examples.jsonl`",
    "file": "name in the manifest's folder",
    "pass_index": "which pass over the corpus, with its own orders and targets",
    "slice_index": "which slice of the corpus",
    "forward_segments": "records that are read forward, first in the file",
    "backward_segments": "records that are read backward",
    "bytes": "size of the file",
    "sha256": "hex digest of the file",
    "text_sha256": "hex digest of the slice of text that it was made from",
}


# Serving.


def serving() -> str:
    """Returns the page of what each task's SavedModel takes and gives."""
    from tests.conftest import invent_texts
    from tests.helpers.serving.exports import KINDS
    from xlnet_tf.text.training import train_tokenizer

    tokenizer = train_tokenizer(invent_texts(600), 90)
    text = [
        "# Served signatures\n\n" + NOTE,
        "`xlnet-tf export` writes these signatures. B is the number of rows of a request. Each example shows "
        "one row and the answer of a tiny model with random weights; `...` stands for what is left out. The "
        "names in the requests are those of the REST API and of `xlnet-tf predict --server`.\n",
    ]
    for name, kind in KINDS.items():
        module = kind.module(kind.model(tokenizer), tokenizer)
        docstring = sections(type(module).__doc__)
        text.append(f"## {name.replace('_', ' ').capitalize()}\n\n{prose(docstring[''])}\n")
        text.append(f"```text\n{inspect.cleandoc(_served_part(type(module)))}\n```\n")
        signatures = module.signatures()
        for signature, inputs in module.example_inputs().items():
            if signature != "examples" and signature in signatures:
                answer = signatures[signature](**{key: _tensor(value) for key, value in inputs.items()})
                text.append(f"### {name}: {signature}\n\n```json\n{_row(inputs)}\n```\n")
                text.append(f"answers\n\n```json\n{_row(answer)}\n```\n")
    return "\n".join(text)


def _served_part(cls: type) -> str:
    """Returns the part of a module's docstring about its signatures."""
    return re.search(r"(Signatures: .*?)(?:\n\n|\Z)", inspect.cleandoc(cls.__doc__), re.DOTALL)[1]


def _tensor(value: Any):
    import tensorflow as tf

    return tf.constant(value.tolist(), tf.string) if value.dtype == object else tf.constant(value)


def _row(columns: Mapping[str, Any]) -> str:
    """Returns the first row of columns as JSON, a name a line, long lists cut."""

    def short(value):
        value = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(value, list):
            return [short(item) for item in value[:3]] + ["..."] * (len(value) > 3)
        if isinstance(value, bytes):
            is_text = value.decode("utf-8", "replace").isprintable()
            return value.decode() if is_text else {"b64": "..."}  # its bytes differ from run to run
        return round(value, 4) if isinstance(value, float) else value

    import numpy as np

    rows = {name: short(np.asarray(value)[0]) for name, value in sorted(columns.items())}
    lines = [f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in rows.items()]
    return "{\n" + ",\n".join(lines) + "\n}"


PAGES = {"commands": commands, "settings": settings, "records": records, "serving": serving}


def written(page: Callable[[], str]) -> str:
    """Returns a page as its file has it."""
    return re.sub(r"\n{3,}", "\n\n", page()).rstrip("\n") + "\n"


def main():
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / f"{name}.md").write_text(written(page))


if __name__ == "__main__":
    main()
