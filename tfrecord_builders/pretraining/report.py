"""The pretraining builder's report on a set: its statistics, warnings, a table."""

import collections
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xlnet_tf.cli import command_line
from xlnet_tf.records import segments
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.text.marks import letters_lost

FEW_STREAMS = 32  # a dev set may have fewer: rows of an evaluation may be empty
MAX_UNKNOWN_RATE = 0.01
MIN_WORD_START_RATE = 0.3  # below, spans of whole words become very long pieces of text
MAX_SHORT_SHARE = 0.5  # of the tokens, in documents that fill no segment
MAX_DUPLICATE_SHARE = 0.01  # of the documents
MAX_DROPPED_SHARE = 0.01  # of the tokens
MAX_EMPTY_SHARE = 0.01  # of the documents
SHOWN_FILES = 3


def merge_statistics(shards: Sequence[Shard]) -> dict[str, Any]:
    """Adds up the statistics of all shards: the text once for all passes, each document once."""
    text: dict[str, Any] = collections.Counter()
    by_name: dict[str, dict[str, int]] = collections.defaultdict(collections.Counter)
    tokens: dict[tuple[int, int], dict[str, Any]] = {}
    runs: dict[int, int] = collections.Counter()
    for shard in shards:
        if shard.pass_index == 0:
            for name, value in shard.statistics["text"].items():
                if isinstance(value, dict):
                    by_name[name].update(value)
                else:
                    text[name] += value
        for entry in shard.statistics["tokens"]:
            key = (entry["pass"], entry["direction"])
            merged = tokens.setdefault(key, {"in": 0, "written": 0, "dropped": collections.Counter()})
            merged["in"] += entry["in"]
            merged["written"] += entry["written"]
            merged["dropped"].update({reason: n for reason, n in entry["dropped"].items() if n})
        runs.update({length: n for length, n in enumerate(shard.statistics["target_runs"], 1) if n})
    text["documents"] -= text.pop("documents_continued", 0)
    return {
        **text,
        "unknown_rate": text["unknown"] / max(text["tokens"], 1),
        "word_start_rate": text["word_starts"] / max(text["tokens"], 1),
        **{name: dict(counts) for name, counts in by_name.items()},
        "document_lengths": {
            key: by_name["document_lengths"][key] for key in sorted(by_name["document_lengths"], key=int)
        },
        "targets": sum(shard.statistics["targets"] for shard in shards),
        "target_runs": {str(length): runs[length] for length in sorted(runs)},
        "tokens_in": sum(entry["in"] for entry in tokens.values()),
        "tokens_written": sum(entry["written"] for entry in tokens.values()),
        "tokens_dropped": dict(sum((entry["dropped"] for entry in tokens.values()), collections.Counter())),
        "tokens_by_pass": [
            {"pass": pass_index, "direction": direction, **entry, "dropped": dict(entry["dropped"])}
            for (pass_index, direction), entry in sorted(tokens.items())
        ],
    }


def warnings(manifest: Manifest) -> list[str]:
    """Returns warnings about a finished set: what was found, why it matters and what to do."""
    statistics = _counted(manifest)
    parts = (_text_warnings, _document_warnings, _size_warnings)
    return [warning for part in parts for warning in part(manifest, statistics)]


def _text_warnings(manifest: Manifest, statistics: Mapping[str, Any]) -> Iterator[str]:
    if statistics["unknown_rate"] > MAX_UNKNOWN_RATE:
        yield (
            f"{statistics['unknown_rate']:.1%} of the tokens are <unk> (more than {MAX_UNKNOWN_RATE:.0%}): "
            "the tokenizer cannot write this text, and the model learns to predict <unk>. Is the text of "
            "another language, script or case? Clean it, or train a tokenizer on it "
            f"({command_line.spelled('python -m run_scripts.train_tokenizer')})"
        )
    if statistics["word_start_rate"] < MIN_WORD_START_RATE and manifest.mask["span_mode"] == "words":
        yield (
            f"only {statistics['word_start_rate']:.1%} of the tokens start a word (less than "
            f"{MIN_WORD_START_RATE:.0%}), as in text without spaces: spans of whole words are long, and a "
            "few of them take all targets of a segment. Use --span_mode=pieces, or a tokenizer of this "
            "language"
        )
    if marks := letters_lost(statistics["dropped_marks"], statistics["characters"]):
        yield (
            f"{sum(marks.values()) / statistics['characters']:.1%} of the characters lose a mark, as in the "
            f"released models' text, in scripts where it makes another letter ({_counts(marks)}): words that "
            "differ become one. Use --keep_accents, unless a released model is to learn from this text"
        )
    if nul_bytes := statistics["nul_bytes"]:
        files = ", ".join(f"{n:,} in {name}" for name, n in itertools.islice(nul_bytes.items(), SHOWN_FILES))
        yield (
            f"{sum(nul_bytes.values()):,} bytes of the text are NUL, which no text has ({files}"
            f"{', ...' * (len(nul_bytes) > SHOWN_FILES)}): are these files whole? They stay in the text, as "
            "<unk>. Write the files again, or remove the bytes with `tr -d '\\0'`"
        )


def _document_warnings(manifest: Manifest, statistics: Mapping[str, Any]) -> Iterator[str]:
    tokens, documents = max(statistics["tokens"], 1), max(statistics["documents_in"], 1)
    short_share = statistics["short_document_tokens"] / tokens
    if short_share > MAX_SHORT_SHARE:
        yield (
            f"{short_share:.0%} of the tokens are in documents shorter than a segment of {manifest.seq_len} "
            f"tokens ({statistics['short_documents']:,} of {statistics['documents']:,} documents): segments "
            "join unrelated texts, and memory has little to carry. Use a smaller --seq_len, or longer "
            "documents (are blank lines between paragraphs taken for the ends of documents?)"
        )
    sentence = statistics["tokens"] / max(statistics["sentences"], 1)
    room = manifest.seq_len - manifest.reuse_len - segments.NUM_SPECIAL
    if sentence > 2 * room:
        yield (
            f"sentences have {sentence:,.0f} tokens on average, A and B together {room}: most segments are "
            "cut in the middle of a sentence. Are lines paragraphs? Split them with --sentence_split=LANGUAGE"
        )
    duplicates = statistics["duplicate_documents"]
    if duplicates > MAX_DUPLICATE_SHARE * documents and not manifest.documents["dedup"]:
        yield (
            f"{duplicates:,} of {documents:,} documents ({duplicates / documents:.1%}) equal an earlier one: "
            "the model learns them by heart, and a dev set may hold what was trained on. Leave them out "
            "with --dedup"
        )
    if (empty := statistics["documents_dropped"].get("empty", 0)) > MAX_EMPTY_SHARE * documents:
        yield (
            f"{empty:,} of {documents:,} documents ({empty / documents:.1%}) have no text: there is less to "
            "train on than it seems. Is --text_field the field of the text?"
        )


def _size_warnings(manifest: Manifest, statistics: Mapping[str, Any]) -> Iterator[str]:
    dropped = sum(statistics["tokens_dropped"].values())
    if dropped > MAX_DROPPED_SHARE * statistics["tokens_in"]:
        yield (
            f"{dropped / statistics['tokens_in']:.1%} of the tokens are in no record "
            f"({_counts(statistics['tokens_dropped'])}): each job drops what fills no segment at "
            f"its end. Use a larger --slice_mb (now {manifest.slice_bytes / 1e6:g})"
        )
    if (streams := manifest.num_streams) < FEW_STREAMS and manifest.documents.get("side") != "dev":
        yield (
            f"only {streams} streams: rows of a batch are streams, so a batch can have {streams} rows at "
            f"most. A smaller --stream_segments (now {manifest.stream_segments}) makes more of them, and so "
            "does more text"
        )


def summary(manifest: Manifest) -> str:
    statistics = _counted(manifest)
    total_bytes = sum(shard.bytes for shard in manifest.shards)
    rows = {
        "text": f"{_size(statistics['bytes'])}, {statistics['sentences']:,} sentence"
        f"{'s' * (statistics['sentences'] != 1)}",
        "tokens": f"{statistics['tokens']:,} ({statistics['characters'] / max(statistics['tokens'], 1):.2f} "
        f"characters each, {statistics['unknown_rate']:.2%} <unk>, "
        f"{statistics['word_start_rate']:.0%} start a word)",
        "documents": f"{statistics['documents']:,} of {statistics['documents_in']:,} ("
        f"{statistics['tokens'] / max(statistics['documents'], 1):,.0f} tokens each; "
        f"{statistics['short_document_tokens'] / max(statistics['tokens'], 1):.0%} of the tokens in some "
        f"shorter than a segment); dropped: {_counts(statistics['documents_dropped'])}"
        + ("" if manifest.documents["dedup"] else f"; {statistics['duplicate_documents']:,} duplicates"),
        "passes": f"{manifest.num_passes}, {' and '.join(manifest.directions)}",
        "records": f"{manifest.records:,} of {manifest.seq_len} tokens, "
        f"in {manifest.num_streams:,} streams a pass",
        "targets": f"{statistics['targets'] / max(manifest.records, 1):.1f} a record, in runs of "
        f"{_mean_run(statistics['target_runs']):.2f} tokens",
        "tokens in": f"{statistics['tokens_in']:,} = {statistics['tokens_written']:,} written + "
        f"dropped: {_counts(statistics['tokens_dropped'])}",
        "files": f"{len(manifest.shards)} shard{'s' * (len(manifest.shards) > 1)}, {_size(total_bytes)}, "
        f"{manifest.record_bytes:,} bytes a record",
        "folder": str(manifest.folder),
    }
    return "\n".join(f"  {name:<10} {value}" for name, value in rows.items())


def _counted(manifest: Manifest) -> dict[str, Any]:
    """Returns the statistics of a set, with those that older builds did not count."""
    not_counted = {
        "documents_in": manifest.statistics["documents"],
        "documents_dropped": {},
        "duplicate_documents": 0,
        "short_document_tokens": 0,
        "dropped_marks": {},
        "nul_bytes": {},
    }
    return not_counted | manifest.statistics


def _counts(counts: Mapping[str, int]) -> str:
    return (
        ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count) or "none"
    )


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:,.1f} kB"


def _mean_run(runs: Mapping[str, int]) -> float:
    return sum(int(length) * n for length, n in runs.items()) / max(sum(runs.values()), 1)
