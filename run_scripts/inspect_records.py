"""Shows pretraining records to a person, draws their permutation masks, and checks a whole set.

python -m run_scripts.inspect_records --records=records --record=0 --target=3
python -m run_scripts.inspect_records --records=records --record=0 --png=mask.png
python -m run_scripts.inspect_records --records=records --check
"""

import sys
from collections.abc import Iterator, Sequence

import numpy as np
import tqdm
from absl import flags

from xlnet_tf import errors
from xlnet_tf.errors import UserError
from xlnet_tf.records import ranks
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.records.shards import read_shard
from xlnet_tf.records.spec import stream_id
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

WIDTH = 108
MOST_LABELLED = 64  # tokens whose pieces still fit along the sides of a picture
BOLD, PLAIN = "\033[1;33m", "\033[0m"


class Record:
    """One record with everything that follows from it.

    Args:
        columns: name -> [1, ...] arrays, as `read_shard` gives them.
    """

    def __init__(self, columns: dict[str, np.ndarray]):
        self.columns = {name: values[0] for name, values in columns.items()}
        self.ids = self.columns["input_ids"].astype(int)
        self.rank = self.columns["permutation_rank"].astype(int)
        positions = self.columns["target_positions"].astype(int)
        self.targets = positions[positions >= 0]
        self.is_target = np.zeros(len(self.ids), bool)
        self.is_target[self.targets] = True
        self.content_visible, self.query_visible = ranks.expand(self.rank, self.is_target)  # [T, T]

    def parts(self, reuse_len: int) -> dict[str, slice]:
        """Where the reused part, A and B lie, each with the functional tokens that end it."""
        a_sep = reuse_len + int(np.argmax(self.ids[reuse_len:] == SEP_ID))
        return {
            "reused": slice(0, reuse_len),
            "A": slice(reuse_len, a_sep + 1),
            "B": slice(a_sep + 1, len(self.ids)),
        }

    def steps(self) -> list[np.ndarray]:
        """The targets in the order of their prediction; those predicted independently stand together."""
        target_ranks = self.rank[self.targets]
        return [self.targets[target_ranks == rank] for rank in np.unique(target_ranks)]


def load_record(manifest: Manifest, number: int) -> tuple[Shard, int, Record]:
    """Reads one record.

    Args:
        manifest: the set.
        number: of the record, counted over all shards in the manifest's order.

    Returns:
        (its shard, its index there, the record).

    Raises:
        UserError: there is no such record, or it is damaged.
    """
    if not 0 <= number < manifest.records:
        raise UserError(f"record is {number}, expected 0 to {manifest.records - 1}: the set has no more")
    index = number
    for shard in manifest.shards:
        if index < shard.records:
            return shard, index, Record(read_shard(manifest.path(shard), manifest.spec, index, 1))
        index -= shard.records
    raise AssertionError("the records of all shards add up to manifest.records")


def describe(manifest: Manifest, number: int, target: int | None = None, color: bool = False) -> str:
    """Lays a record out for a person.

    Args:
        manifest: the set.
        number: of the record.
        target: which target's view to show: its place in the order of prediction; None: the middle one.
        color: whether to mark targets with a terminal's colours.

    Returns:
        The text: what and where the record is, its parts with the targets as [piece], the order of
        prediction, and what the chosen target sees in both streams.

    Raises:
        UserError: there is no such record or target.
    """
    shard, index, record = load_record(manifest, number)
    tokenizer = XLNetTokenizer(model_file=manifest.tokenizer_path)
    pieces = [_visible(tokenizer.id_to_piece(i)) for i in record.ids]
    order = np.concatenate(record.steps()) if len(record.targets) else np.array([], int)
    columns = record.columns
    forward = columns["direction"] == 1
    lines = [
        f"record {number} of {manifest.records:,}: {shard.file}, record {index}",
        f"  pass {shard.pass_index}, slice {shard.slice_index}, stream {columns['stream']}, segment "
        f"{columns['segment']} of the stream, {columns['document_offset']} tokens into a document",
        f"  read {'forward' if forward else 'backward: the last token of the text comes first'}; B "
        f"{'continues A' if columns['next_sentence'] == 1 else 'comes from elsewhere'}; "
        f"{len(record.targets)} targets of {manifest.num_predict}",
    ]
    for name, part in record.parts(manifest.reuse_len).items():
        shown = [_marked(pieces[i], record.is_target[i], color) for i in range(part.start, part.stop)]
        title = f"{name} ({part.start} to {part.stop - 1}, {int(record.is_target[part].sum())} targets)"
        lines += ["", title, *_wrapped(shown)]
    lines += ["", "order of prediction (position:piece; what is in one {} is predicted independently)"]
    lines += _wrapped(
        [
            f"{step[0]}:{pieces[step[0]]}"
            if len(step) == 1
            else "{" + " ".join(f"{i}:{pieces[i]}" for i in step) + "}"
            for step in record.steps()
        ]
    )
    if len(order):
        chosen = len(order) // 2 if target is None else target
        if not 0 <= chosen < len(order):
            raise UserError(f"target is {chosen}, expected 0 to {len(order) - 1}: the record has no more")
        lines += ["", *_view(record, pieces, int(order[chosen]), chosen, manifest.reuse_len)]
    return "\n".join(lines)


def _view(record: Record, pieces: list[str], position: int, place: int, reuse_len: int) -> list[str]:
    """Lines that show what one target sees, with ___ for hidden pieces: the text as the model has it."""
    query, content = record.query_visible[position], record.content_visible[position]
    visible_targets = int((query & record.is_target).sum())
    functional = np.isin(record.ids, (SEP_ID, CLS_ID))
    lines = [
        f"target {place} in the order: position {position}, piece {pieces[position]}, "
        f"rank {record.rank[position]}",
        f"  query stream sees {int(query.sum())} of {len(query)} positions (and the memory): "
        f"{int((query & ~record.is_target & ~functional).sum())} context, {visible_targets} targets "
        f"predicted before, {int((query & functional).sum())} of SEP SEP CLS; not itself",
        f"  content stream sees the same{' and itself' if content[position] else ''}: "
        f"{int(content.sum())} positions",
        "  as the query stream has it (<?> is to be predicted, ___ is hidden):",
    ]
    shown = ["<?>" if i == position else piece if query[i] else "___" for i, piece in enumerate(pieces)]
    for name, part in record.parts(reuse_len).items():
        if query[part].any() or part.start <= position < part.stop:
            lines += [f"  {name}", *_wrapped(shown[part])]
        else:
            lines.append(f"  {name}: hidden")
    return lines


def draw(manifest: Manifest, number: int, path: str, first: int = 0, count: int | None = None) -> None:
    """Draws the permutation mask of a record for both streams as a picture.

    Args:
        manifest: the set.
        number: of the record.
        path: of the PNG file.
        first: first position to draw.
        count: positions to draw; None: all from `first` on.

    Raises:
        UserError: there is no such record or window.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import patches, pyplot
    from matplotlib.colors import to_rgb

    _, _, record = load_record(manifest, number)
    seq_len = manifest.seq_len
    last = seq_len if count is None else min(seq_len, first + count)
    if not 0 <= first < last:
        raise UserError(f"window of {count} positions from {first}, expected some of 0 to {seq_len - 1}")
    window = slice(first, last)
    functional = np.isin(record.ids, (SEP_ID, CLS_ID))
    kind = np.where(functional, 3, np.where(record.is_target, 2, 1))  # [T], what a visible key is
    itself = np.eye(seq_len, dtype=bool)
    names = ["hidden", "context", "target, predicted before", "SEP or CLS", "itself"]
    colors = ["#f4f4f4", "#9ecae1", "#e6550d", "#31a354", "#222222"]
    labelled = last - first <= MOST_LABELLED
    size = max(6.5, 0.19 * (last - first)) if labelled else 8.5
    figure, axes = pyplot.subplots(1, 2, figsize=(2 * size + 1, size + 1.6), layout="constrained")
    pieces = None
    if labelled:
        tokenizer = XLNetTokenizer(model_file=manifest.tokenizer_path)
        pieces = [_visible(tokenizer.id_to_piece(i)) for i in record.ids[window]]
    streams = {
        "content stream: every position, knowing its own token": record.content_visible,
        "query stream: targets only (others pale), not knowing their own token": record.query_visible,
    }
    for axis, (title, visible) in zip(axes, streams.items(), strict=True):
        image = np.where(visible, np.where(itself, 4, kind[None, :]), 0)[window, window]
        shades = np.array([to_rgb(color) for color in colors])[image]
        if visible is record.query_visible:
            shades[~record.is_target[window]] = 0.25 * shades[~record.is_target[window]] + 0.75
        extent = (first - 0.5, last - 0.5, last - 0.5, first - 0.5)
        axis.imshow(shades, interpolation="nearest", extent=extent)
        axis.set_title(title, fontsize=13, pad=18)
        axis.set_xlabel("is it seen? (key position)")
        axis.set_ylabel("who looks (position)")
        for name, part in record.parts(manifest.reuse_len).items():
            if first < part.start < last:
                axis.axhline(part.start - 0.5, color="black", linewidth=0.8)
                axis.axvline(part.start - 0.5, color="black", linewidth=0.8)
            low, high = max(part.start, first), min(part.stop, last)
            if low < high:
                middle = (low + high - 1) / 2
                axis.annotate(
                    name,
                    (middle, 1.0),
                    xycoords=("data", "axes fraction"),
                    xytext=(0, 4),
                    textcoords="offset points",
                    ha="center",
                    fontsize=9,
                    color="#444444",
                )
        if pieces is not None:
            ticks = np.arange(first, last)
            axis.set_xticks(ticks, pieces, rotation=90, fontsize=7)
            axis.set_yticks(ticks, pieces, fontsize=7)
            for tick, position in zip(
                [*axis.get_xticklabels(), *axis.get_yticklabels()], [*ticks, *ticks], strict=True
            ):
                if record.is_target[position]:
                    tick.set_color(colors[2])
                    tick.set_fontweight("bold")
    direction = "forward" if record.columns["direction"] == 1 else "backward"
    figure.suptitle(
        f"Permutation mask of record {number} ({manifest.objective}, read {direction}, "
        f"{len(record.targets)} targets): rows see the coloured columns",
        fontsize=14,
    )
    handles = [
        patches.Patch(facecolor=c, edgecolor="#999999", label=n) for c, n in zip(colors, names, strict=True)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=11)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def check(manifest: Manifest, progress: bool = False) -> int:
    """Checks every record of a set.

    Args:
        manifest: the set.
        progress: whether to draw a progress bar on stderr.

    Returns:
        How many records were checked.

    Raises:
        UserError: an invariant does not hold; with file and record.
        FileNotFoundError: a shard is missing.
    """
    checked = 0
    tokenizer = XLNetTokenizer(model_file=manifest.tokenizer_path)
    manifest.check_tokenizer(tokenizer.fingerprint)
    manifest.check_files(checksums=True)
    statistics = manifest.statistics
    dropped = sum(statistics["tokens_dropped"].values())
    if statistics["tokens_in"] != statistics["tokens_written"] + dropped:
        raise UserError(
            f"{manifest.folder}: statistics.tokens_in is {statistics['tokens_in']}, but written and "
            f"dropped are {statistics['tokens_written']} + {dropped}: build the records again"
        )
    with tqdm.tqdm(total=manifest.records, unit="record", unit_scale=True, disable=not progress) as bar:
        for shard in manifest.shards:
            columns = read_shard(manifest.path(shard), manifest.spec)
            for name, wrong in _broken_rules(manifest, shard, columns):
                if wrong.any():
                    raise UserError(f"{manifest.path(shard)}, record {int(np.argmax(wrong))}: {name}")
            checked += shard.records
            bar.update(shard.records)
    return checked


def _broken_rules(
    manifest: Manifest, shard: Shard, columns: dict[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields for each invariant what is wrong where it is broken, and bool [S]: the records that break it."""
    reuse_len, count = manifest.reuse_len, shard.records
    ids = columns["input_ids"].astype(int)
    rank = columns["permutation_rank"].astype(int)
    positions = columns["target_positions"].astype(int)
    filled = positions >= 0
    is_target = np.zeros((count, manifest.seq_len + 1), bool)
    np.put_along_axis(
        is_target, np.clip(positions, -1, manifest.seq_len), True, axis=1
    )  # -1: the extra column
    is_target = is_target[:, :-1]
    functional = np.isin(ids, (SEP_ID, CLS_ID))

    yield (
        f"input_ids reach {ids.max(initial=0)}, beyond the vocabulary",
        (ids >= manifest.tokenizer["vocab_size"]).any(axis=1),
    )
    yield (
        "the segment is not [reused | A SEP B SEP CLS]",
        (
            (ids[:, -2] != SEP_ID)
            | (ids[:, -1] != CLS_ID)
            | (functional.sum(axis=1) != 3)
            | functional[:, :reuse_len].any(axis=1)
        ),
    )
    after_a = np.cumsum(ids == SEP_ID, axis=1) - (ids == SEP_ID)  # SEPs before a position
    expected_ids = np.where(ids == CLS_ID, 2, after_a)
    yield (
        "segment_ids are not 0 for the reused part and A, 1 for B, 2 for CLS",
        (columns["segment_ids"] != expected_ids).any(axis=1),
    )
    wanted = filled.sum(axis=1) if manifest.compat else manifest.num_predict
    yield f"the record has not {manifest.num_predict} targets", is_target.sum(axis=1) != wanted
    both = filled[:, 1:] & filled[:, :-1]
    yield (
        "target_positions are not ascending positions with empty slots at the end",
        (
            (both & (np.diff(positions, axis=1) <= 0)).any(axis=1)
            | (filled[:, 1:] & ~filled[:, :-1]).any(axis=1)
            | (positions >= manifest.seq_len).any(axis=1)
        ),
    )
    yield "SEP or CLS is a target", (is_target & functional).any(axis=1)
    yield from _broken_ranks(manifest, rank, is_target, functional)

    direction = np.repeat([1, -1], [shard.forward_segments, shard.backward_segments])
    yield (
        "direction is not forward for the first records of the shard, then backward",
        (columns["direction"] != direction),
    )
    number, segment = np.divmod(
        np.concatenate([np.arange(shard.forward_segments), np.arange(shard.backward_segments)]),
        manifest.stream_segments,
    )
    number[shard.forward_segments :] += -(-shard.forward_segments // manifest.stream_segments)
    yield (
        "stream or segment is not what follows from the manifest",
        (columns["stream"] != number + stream_id(shard.pass_index, shard.slice_index))
        | (columns["segment"] != segment),
    )
    a_len = np.argmax(ids[:, reuse_len:] == SEP_ID, axis=1)
    compared = np.arange(min(reuse_len, manifest.seq_len - reuse_len))
    differs = ids[:-1, reuse_len:][:, compared] != ids[1:, :reuse_len][:, compared]
    breaks = (differs & (compared < a_len[:-1, None])).any(axis=1) & (segment[1:] > 0)
    yield "the record does not go on where the one before it in its stream ended", np.append(False, breaks)
    longest = segment * reuse_len
    yield (
        "document_offset is negative or reaches beyond the stream's start",
        ((columns["document_offset"] < 0) | (columns["document_offset"] > longest)),
    )


def _broken_ranks(manifest, rank, is_target, functional):
    """Yields the invariants of the factorization order."""
    reuse_len = manifest.reuse_len
    context = ~is_target & ~functional
    targets_only = np.where(is_target, rank, np.iinfo(np.int16).max)
    context_only = np.where(context, rank, -1)
    if manifest.objective == "permutation":
        for part in (np.s_[:, :reuse_len], np.s_[:, reuse_len:]):
            yield (
                "a context token does not come before all targets of its part in the order",
                (context_only[part].max(axis=1) >= targets_only[part].min(axis=1)),
            )
        ordered = np.sort(np.where(is_target, rank, -1 - np.arange(rank.shape[1])), axis=1)
        yield (
            "two targets share a place in the order, so that one would not see the other",
            (np.diff(ordered, axis=1) == 0).any(axis=1),
        )
        yield (
            "the first part sees something of the second",
            (rank[:, :reuse_len].max(axis=1) >= rank[:, reuse_len:].min(axis=1)),
        )
    elif manifest.objective == "autoregressive":
        yield "the order is not the natural one", (rank != np.arange(rank.shape[1])).any(axis=1)
    else:
        yield (
            "targets do not share one rank above the context's",
            (
                (
                    np.where(is_target, rank, targets_only.min(axis=1)[:, None])
                    != targets_only.min(axis=1)[:, None]
                ).any(axis=1)
                | (context_only.max(axis=1) >= targets_only.min(axis=1))
            ),
        )


def _visible(piece: str) -> str:
    return piece if piece.isprintable() else ascii(piece)[1:-1]


def _marked(piece: str, is_target: bool, color: bool) -> str:
    if not is_target:
        return piece
    return f"{BOLD}[{piece}]{PLAIN}" if color else f"[{piece}]"


def _wrapped(words: Sequence[str]) -> list[str]:
    """Breaks words into lines of WIDTH characters; terminal colours take no room."""
    lines, length = [[]], 0
    for word in words:
        room = len(word.replace(BOLD, "").replace(PLAIN, "")) + 1
        if length + room > WIDTH and lines[-1]:
            lines.append([])
            length = 0
        lines[-1].append(word)
        length += room
    return ["    " + " ".join(line) for line in lines]


def define_flags() -> None:
    """Defines the script's flags."""
    flags.DEFINE_string("records", None, "folder of pretraining records", required=True)
    flags.DEFINE_integer("record", 0, "which record to show, counted over all shards", lower_bound=0)
    flags.DEFINE_integer("target", None, "whose view to show, by place in the order. Default: the middle one")
    flags.DEFINE_string("png", None, "draw the record's permutation mask into this file, too")
    flags.DEFINE_integer("first", 0, "first position to draw", lower_bound=0)
    flags.DEFINE_integer(
        "count", None, f"positions to draw; up to {MOST_LABELLED} are labelled. Default: all"
    )
    flags.DEFINE_bool("check", False, "check all records of the set instead of showing one")


def main(argv: Sequence[str]) -> None:
    del argv
    values = flags.FLAGS
    manifest = Manifest.load(values.records)
    if values.check:
        count = check(manifest, progress=True)
        print(f"{manifest.folder}: all {count:,} records of {len(manifest.shards)} shards are sound")
        return
    print(describe(manifest, values.record, values.target, color=sys.stdout.isatty()))
    if values.png:
        draw(manifest, values.record, values.png, values.first, values.count)
        print(f"\nwrote {values.png}")


if __name__ == "__main__":
    define_flags()
    errors.run(main)
