"""Describes pretraining records for people: location, parts, order, what a target sees."""

from collections.abc import Sequence

import numpy as np

from xlnet_tf.errors import UserError
from xlnet_tf.records import ranks
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.records.shards import read_shard
from xlnet_tf.records.spans import target_flags
from xlnet_tf.records.spec import stream_name
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

WIDTH = 108
BOLD, PLAIN = "\033[1;33m", "\033[0m"


class Record:
    """One record, from columns of [1, ...], with derived values."""

    def __init__(self, columns: dict[str, np.ndarray]):
        self.columns = {name: values[0] for name, values in columns.items()}
        self.ids = self.columns["input_ids"].astype(int)
        self.rank = self.columns["permutation_rank"].astype(int)
        self.is_target = target_flags(columns)[0]
        self.targets = np.flatnonzero(self.is_target)
        self.special = np.isin(self.ids, (SEP_ID, CLS_ID))
        self.content_visible, self.query_visible = ranks.expand(self.rank, self.is_target)  # [T, T]

    def parts(self, reuse_len: int) -> dict[str, slice]:
        """The slices of the reused part, A and B, each with the special tokens that end it."""
        a_sep = reuse_len + int(np.argmax(self.ids[reuse_len:] == SEP_ID))
        return {
            "reused": slice(0, reuse_len),
            "A": slice(reuse_len, a_sep + 1),
            "B": slice(a_sep + 1, len(self.ids)),
        }

    def steps(self) -> list[np.ndarray]:
        """The targets in the order of their prediction; those predicted independently are grouped."""
        target_ranks = self.rank[self.targets]
        return [self.targets[target_ranks == rank] for rank in np.unique(target_ranks)]


def load_record(manifest: Manifest, number: int) -> tuple[Shard, int, Record]:
    """Returns a record, by its number over all shards in the manifest's order, its shard, and its index."""
    if not 0 <= number < manifest.records:
        raise UserError(f"record is {number}, expected 0 to {manifest.records - 1}: the set has no more")
    index = number
    for shard in manifest.shards:
        if index < shard.records:
            break
        index -= shard.records
    return shard, index, Record(read_shard(manifest.path(shard), manifest.spec, index, 1))


def describe(manifest: Manifest, number: int, target: int | None = None, color: bool = False) -> str:
    """Describes a record for a person.

    `target` is the position in the order of prediction of the target whose view is shown; None: the middle
    one. `color` marks targets with a terminal's colours.
    """
    shard, index, record = load_record(manifest, number)
    tokenizer = XLNetTokenizer(model_file=manifest.tokenizer_path)
    pieces = [visible_piece(tokenizer.id_to_piece(i)) for i in record.ids]
    order = np.concatenate(record.steps()) if len(record.targets) else np.array([], int)
    columns = record.columns
    forward = columns["direction"] == 1
    lines = [
        f"record {number} of {manifest.records:,}: {shard.file}, record {index}",
        f"  stream: {stream_name(int(columns['stream']), int(columns['direction']))}; segment "
        f"{columns['segment']} of the stream, {columns['document_offset']} tokens into a document",
        f"  read {'forward' if forward else 'backward: the last token of the text comes first'}; B "
        f"{'continues A' if columns['next_sentence'] == 1 else 'comes from elsewhere'}; "
        f"{len(record.targets)} targets of {manifest.num_predict}",
    ]
    for name, part in record.parts(manifest.reuse_len).items():
        shown = [marked(pieces[i], record.is_target[i], color) for i in range(part.start, part.stop)]
        title = f"{name} ({part.start} to {part.stop - 1}, {int(record.is_target[part].sum())} targets)"
        lines += ["", title, *wrapped(shown)]
    lines += ["", "order of prediction (position:piece; what is in one {} is predicted independently)"]
    lines += wrapped(
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


def _view(record: Record, pieces: list[str], position: int, number: int, reuse_len: int) -> list[str]:
    query, content = record.query_visible[position], record.content_visible[position]
    visible_targets = int((query & record.is_target).sum())
    lines = [
        f"target {number} in the order: position {position}, piece {pieces[position]}, "
        f"rank {record.rank[position]}",
        f"  query stream sees {int(query.sum())} of {len(query)} positions (and the memory): "
        f"{int((query & ~record.is_target & ~record.special).sum())} context, {visible_targets} targets "
        f"predicted before, {int((query & record.special).sum())} of SEP SEP CLS; not itself",
        f"  content stream sees the same{' and itself' if content[position] else ''}: "
        f"{int(content.sum())} positions",
        "  as the query stream has it (<?> is to be predicted, ___ is hidden):",
    ]
    shown = ["<?>" if i == position else piece if query[i] else "___" for i, piece in enumerate(pieces)]
    for name, part in record.parts(reuse_len).items():
        if query[part].any() or part.start <= position < part.stop:
            lines += [f"  {name}", *wrapped(shown[part])]
        else:
            lines.append(f"  {name}: hidden")
    return lines


def visible_piece(piece: str) -> str:
    """Returns a piece as a terminal and a font can show it."""
    return piece if piece.isprintable() else ascii(piece)[1:-1]


def marked(piece: str, is_target: bool, color: bool) -> str:
    """Returns a piece, as [piece] if it is a target."""
    if not is_target:
        return piece
    return f"{BOLD}[{piece}]{PLAIN}" if color else f"[{piece}]"


def wrapped(words: Sequence[str]) -> list[str]:
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
