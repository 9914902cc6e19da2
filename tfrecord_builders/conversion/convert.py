"""Converts pretraining records of the original and of Model Garden to a set in our format.

A row of a file becomes a shard of one direction, so that memory continues through it as before. Orders are
drawn, as neither format has them; so are Model Garden's targets. Everything else is unchanged.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from etils import epath

from tfrecord_builders.conversion import int64_records, model_garden_format, original_format
from tfrecord_builders.conversion.direction_check import Sketch, contradiction
from tfrecord_builders.conversion.int64_records import ExternalFile, ExternalSet
from tfrecord_builders.conversion.options import ConversionOptions
from tfrecord_builders.conversion.readers import ModelGardenReader, OriginalReader
from tfrecord_builders.conversion.rows import RowWriter
from tfrecord_builders.pretraining import output_folder
from tfrecord_builders.pretraining import report as pretraining_report
from xlnet_tf import files, folders
from xlnet_tf.errors import UserError
from xlnet_tf.ownership import folder_lease
from xlnet_tf.progress_bar import ProgressBar
from xlnet_tf.records import manifest as manifest_lib
from xlnet_tf.records import ranks, segments, spans
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.records.shards import read_shard
from xlnet_tf.records.spec import MAX_SLICES, RecordSpec
from xlnet_tf.text.cleaning import CleaningConfig
from xlnet_tf.text.locating import find_file
from xlnet_tf.text.tokenizer import XLNetTokenizer
from xlnet_tf.text.vocabulary import TOKENIZER_FILE

MAX_WRITERS = 256  # files that are open at once; a file with more rows is read several times
MAX_BREAKS = 0.125  # of the records, where rows may break off; more of them mean wrong rows


def convert(options: ConversionOptions, progress: bool = False) -> tuple[Manifest, list[str]]:
    """Converts records; returns the manifest, written last, and notes on what the records lack."""
    folders.claim(options.output_dir, folders.RECORDS, flag="--output_dir")
    original = options.source_format == "original"
    source = (original_format if original else model_garden_format).find(options.input, options.num_cores)
    cleaning = CleaningConfig(lower=source.lower, keep_accents=options.keep_accents)
    tokenizer = XLNetTokenizer(find_file(options.tokenizer), cleaning=cleaning)
    segments.check_lengths(source.seq_len, source.reuse_len)
    with folder_lease(files.make_folder(options.output_dir), "converting records", "--output_dir"):
        return _convert(options, source, tokenizer, progress)


def _convert(
    options: ConversionOptions, source: ExternalSet, tokenizer: XLNetTokenizer, progress: bool
) -> tuple[Manifest, list[str]]:
    folder, original = epath.Path(options.output_dir), options.source_format == "original"
    for name in (manifest_lib.FILE_NAME, output_folder.BUILD_NAME):
        if (folder / name).exists():
            raise UserError(f"{folder} holds records already ({name}): choose another --output_dir")
    files.write(folder / TOKENIZER_FILE, tokenizer.model_proto)

    reader = (OriginalReader if original else ModelGardenReader)(options, source, tokenizer)
    started = _new_manifest(options, source, tokenizer, reader)
    ranks.check_perm_size(started.perm_size, started.seq_len, started.reuse_len)
    rows = sum(file.batch_size for file in source.files)
    if rows > MAX_SLICES:
        raise UserError(f"{rows} rows in all files, expected at most {MAX_SLICES}: convert fewer at once")
    conversion = _Conversion(started, reader, tokenizer.word_starts, options.stream_segments)
    size = sum(file.path.stat().length for file in source.files)
    with ProgressBar(total=size, unit="B", unit_scale=True, desc="converting", disable=not progress) as bar:
        for file in source.files:
            conversion.add(file)
            bar.update(file.path.stat().length)
    shards = sorted(conversion.shards, key=lambda shard: shard.slice_index)
    manifest = dataclasses.replace(
        started,
        use_eod=conversion.has_eod,
        stream_segments=options.stream_segments or max(shard.records for shard in shards),
        shards=tuple(shards),
        statistics=pretraining_report.merge_statistics(shards),
    )
    manifest.save()
    output_folder.remove_leftovers(manifest)
    return Manifest.load(folder), _lacking(manifest, source, original, [*reader.notes, *conversion.notes])


def _new_manifest(
    options: ConversionOptions, source: ExternalSet, tokenizer: XLNetTokenizer, reader
) -> Manifest:
    spec = RecordSpec(source.seq_len, source.reuse_len, reader.num_predict, tokenizer.vocab_size)
    return Manifest.create(
        spec,
        tokenizer.fingerprint,
        bidirectional=any(file.bidirectional for file in source.files),
        split=source.split,
        corpus=[
            {
                "file": file.path.name,
                "bytes": file.path.stat().length,
                "sha256": files.sha256(file.path),
                "converted_from": options.source_format,
                "batch_size": file.batch_size,
                "num_cores": file.num_cores,
                **({"num_predict": source.num_predict} if options.source_format == "original" else {}),
            }
            for file in source.files
        ],
        cleaning=tokenizer.cleaning.to_dict(),
        perm_size=options.perm_size or source.reuse_len,
        functional_tokens=options.functional_tokens or reader.functional_tokens,
        mask=spans.MASK | {"alpha": source.alpha, "beta": source.beta, "span_mode": options.span_mode},
        stream_segments=options.stream_segments or 1,
        seed=options.seed,
        compat=True,  # both cut segments by the original's rules
        folder=epath.Path(options.output_dir),
    )


class _Conversion:
    """Converts files into shards of a set; `notes` are for the user."""

    def __init__(
        self,
        manifest: Manifest,
        reader: OriginalReader | ModelGardenReader,
        word_starts: np.ndarray,
        stream_segments: int | None,
    ):
        self._manifest, self._reader = manifest, reader
        self._word_starts, self._stream_segments = word_starts, stream_segments
        self._opened = 0
        self.shards: list[Shard] = []
        self.has_eod = False
        self.notes: list[str] = []

    def add(self, file: ExternalFile) -> None:
        """Writes a file's rows as shards, one for each row without a break."""
        sketches: dict[int, Sketch] = {}
        breaks = 0
        for first in range(0, file.batch_size, MAX_WRITERS):
            breaks += self._add_rows(file, range(first, min(first + MAX_WRITERS, file.batch_size)), sketches)
        if file.bidirectional:
            _check_directions(file, sketches)
        if breaks:
            self.notes.append(
                f"{file.path.name}: rows break off at {breaks:,} positions, where a record is not the text "
                "that follows the row's record before it: a new stream begins there"
            )

    def _add_rows(self, file: ExternalFile, numbers: range, sketches: dict[int, Sketch]) -> int:
        """Writes some rows of a file; returns the number of breaks."""
        before, breaks = None, 0
        with contextlib.ExitStack() as stack:
            rows = {number: self._open(stack, file, number) for number in numbers}
            for step, columns in self._reader.read(file):
                continues = self._continues(before, columns)
                if np.count_nonzero(~continues) > MAX_BREAKS * continues.size:
                    int64_records.check(
                        file,
                        step,
                        continues,
                        "is not the text that follows the row's record before it, as many: is the batch "
                        "size right, and are all records there?",
                    )
                for number in numbers:
                    sketch = sketches.setdefault(number, Sketch(len(self._word_starts)))
                    sketch.add(columns["input_ids"][:, number, : self._manifest.reuse_len].reshape(-1))
                    borders = [0, *(np.flatnonzero(~continues[1:, number]) + 1), len(continues)]
                    for begin, end in itertools.pairwise(borders):
                        if not continues[begin, number]:
                            self._close(rows[number])
                            rows[number] = self._open(stack, file, number)
                            breaks += 1
                        part = {name: values[begin:end, number] for name, values in columns.items()}
                        rows[number].write(self._reader, part)
                before = {name: columns[name][-1:] for name in ("input_ids", "a_len")}
            if before is None:
                raise UserError(f"{file.path} has no step of all {file.batch_size} rows: nothing to convert")
            for row in rows.values():
                self._close(row)
        return breaks

    def _continues(self, before, columns) -> np.ndarray:
        """Returns bool [S, B]: which records continue where their row's previous record ended."""
        first = before or {name: columns[name][:1] for name in ("input_ids", "a_len")}
        ids, a_len = (np.concatenate([first[name], columns[name]]) for name in ("input_ids", "a_len"))
        continues = int64_records.continues(ids[:-1], ids[1:], a_len[:-1], self._manifest.reuse_len)
        return continues | ((before is None) & (np.arange(len(continues)) == 0)[:, None])

    def _open(self, stack: contextlib.ExitStack, file: ExternalFile, number: int) -> RowWriter:
        row = RowWriter(self._manifest, file, number, self._opened, self._stream_segments, self._word_starts)
        stack.enter_context(row)
        self._opened += 1
        return row

    def _close(self, row: RowWriter) -> None:
        row.close()
        self.shards.append(row.shard())
        self.has_eod |= row.has_eod


def _check_directions(file: ExternalFile, sketches: dict[int, Sketch]) -> None:
    """Raises UserError if the number of cores implies wrong reading directions."""
    numbers = sorted(sketches)
    rows = contradiction([sketches[number] for number in numbers], file.backward[numbers])
    if rows:
        first, second = (numbers[row] for row in rows)
        same = (
            "the same direction" if file.backward[first] == file.backward[second] else "opposite directions"
        )
        raise UserError(
            f"{file.path}: with {file.num_cores} cores, rows {first} and {second} would be read in {same}, "
            "but what they have in common says otherwise: give the build's --num_cores"
        )


def _lacking(manifest: Manifest, source: ExternalSet, original: bool, notes: Sequence[str]) -> list[str]:
    lacks = [
        "streams are not in the records: each row of a file became one, with empty memory where it begins",
        "checksums of files are not in the records: each record's own were checked, and the manifest has the "
        "files' sha256",
        "where rows end is not in the records: less than a segment of text after each row's last is lost",
    ]
    if manifest.use_eod:
        lacks.append("document borders are not in the records: <eod> tokens were taken for them")
    else:
        lacks.append(
            "document borders are not in the records, and no <eod> is: each row counts as a document"
        )
    if original:
        lacks.append("factorization orders are not in the records: drawn here, as the original does reading")
        return [*lacks, *notes]
    lacks += [
        "targets and factorization orders are not in the records: drawn here, by this library's rules",
        "directions are not in the records: by row, as the meta file has it",
    ]
    if any(file.num_cores > 1 for file in source.files):
        lacks.append(
            "A and B begin and end anywhere: with several cores, that builder looks for sentences' ends in "
            "other rows' text"
        )
    return [*lacks, *notes]


def summary(manifest: Manifest) -> str:
    statistics, sources = manifest.statistics, len(manifest.corpus)
    bytes_in = sum(source["bytes"] for source in manifest.corpus)
    bytes_out = sum(shard.bytes for shard in manifest.shards)
    rows = {
        "from": f"{sources} file{'s' * (sources != 1)}, {bytes_in / 1e6:,.1f} MB, of "
        f"{manifest.corpus[0]['converted_from']}",
        "records": f"{manifest.records:,} of {manifest.seq_len} tokens, in {manifest.num_streams:,} streams, "
        f"{' and '.join(manifest.directions)}",
        "targets": f"{statistics['targets'] / manifest.records:.1f} a record",
        "tokens": f"{statistics['tokens']:,} ({statistics['unknown_rate']:.2%} <unk>, "
        f"{statistics['word_start_rate']:.0%} start a word)",
        "begin": f"{_begin(manifest)!r} (if that is not text, --tokenizer is not the records' own)",
        "files": f"{len(manifest.shards)} shards, {bytes_out / 1e6:,.1f} MB",
        "folder": str(manifest.folder),
    }
    return "\n".join(f"  {name:<10} {value}" for name, value in rows.items())


def _begin(manifest: Manifest) -> str:
    """Returns the beginning of the first record's text, for a person to check the tokenizer by."""
    shard = manifest.shards[0]
    ids = read_shard(manifest.path(shard), manifest.spec, 0, 1)["input_ids"][0, : manifest.reuse_len]
    text = XLNetTokenizer(manifest.tokenizer_path).decode(ids if shard.forward_segments else ids[::-1])
    return text if len(text) <= 60 else text[:60] + "..."
