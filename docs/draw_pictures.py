"""Draws the pictures of docs/concepts with the code that the page explains.

python -m docs.draw_pictures
"""

import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import matplotlib
import numpy as np
from absl import app, flags
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

import xlnet_tf  # noqa: F401 (chooses tf_keras before TensorFlow is loaded)
from xlnet_tf.config import XLNetConfig
from xlnet_tf.layers import masks
from xlnet_tf.models.encoder import XLNetEncoder
from xlnet_tf.records import ranks, reader
from xlnet_tf.records.manifest import Manifest, Shard
from xlnet_tf.records.segments import sample_segments
from xlnet_tf.records.spec import RecordSpec
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID, SYMBOLS
from xlnet_tf.training.memory import Memory

REUSED = ("New", "York", "is", "a", "very", "big", "city")
TOKENS = (*REUSED, "People", "hurry", "SEP", "Nobody", "sleeps", "SEP", "CLS")
TARGETS = ("New", "York", "hurry", "sleeps")
REUSE_LEN = len(REUSED)
ORDER_SEED = 4

MEMORY_SEQ_LEN, MEMORY_REUSE_LEN, MEMORY_LEN, MEMORY_STEPS = 10, 4, 6, 4
EMPTY = ""  # the label of a memory slot that holds nothing

STREAM_LENGTHS = (4, 4, 2, 4, 3, 4, 4, 3, 4)  # segments of the streams A, B, ...
BATCH_SIZE, NUM_STEPS, STREAM_SEED = 3, 10, 3

# Colours of Okabe and Ito, which colour-blind readers can tell apart; labels repeat what they say.
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#E4E4E4"
LIGHT_BLUE, LIGHT_ORANGE = "#9AD0F5", "#F7C873"
STREAM_COLORS = (
    LIGHT_BLUE,
    LIGHT_ORANGE,
    "#8FD9C0",
    "#F5EE9E",
    "#E8B5D2",
    "#C9C9C9",
    "#F2A67E",
    "#BBA8DC",
    "#D5E8A8",
)
STYLE = {
    "figure.dpi": 130,
    "figure.facecolor": "white",  # so that they can be read on a dark page, too
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters on every machine
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


class Order(NamedTuple):
    """A segment [reused part | A SEP B SEP CLS] and the order in which it is predicted; all [T]."""

    tokens: tuple[str, ...]
    is_target: np.ndarray
    special: np.ndarray
    rank: np.ndarray


def sample_order() -> Order:
    """Draws the factorization order of the example as the builder does."""
    is_target, special = np.isin(TOKENS, TARGETS), np.isin(TOKENS, ("SEP", "CLS"))
    [rank] = ranks.sample_ranks(
        np.random.default_rng(ORDER_SEED),
        is_target[None],
        special[None],
        objective="permutation",
        reuse_len=REUSE_LEN,
        perm_size=REUSE_LEN,
    )
    return Order(TOKENS, is_target, special, rank)


def stream_masks(order: Order) -> tuple[np.ndarray, np.ndarray]:
    """Returns what the content stream and the query stream see: bool [T, T] each."""
    query = masks.permutation_visible(order.rank[None], order.is_target[None])[0].numpy()
    return query | np.eye(len(query), dtype=bool), query


def remembered_steps() -> tuple[list[list[str]], list[list[str]]]:
    """Runs an encoder over the segments of a stream and looks up what its memory holds.

    Returns:
        Labels of the memory's slots, [steps][M], and of the segment's tokens, [steps][T]: a token's
        position in the text, SEP, CLS or EMPTY.
    """
    text_len = (MEMORY_STEPS - 1) * MEMORY_REUSE_LEN + MEMORY_SEQ_LEN - 3
    text = len(SYMBOLS) + np.arange(text_len)  # all tokens differ, so that a vector tells its token
    segments = sample_segments(
        np.random.default_rng(15),
        text,
        np.array([text_len]),  # one sentence
        MEMORY_SEQ_LEN,
        MEMORY_REUSE_LEN,
        np.ones(text_len, bool),
    )
    config = XLNetConfig.preset("micro", n_token=len(SYMBOLS) + text_len)
    encoder = XLNetEncoder(config, memory_len=MEMORY_LEN, reuse_len=MEMORY_REUSE_LEN)
    encoder.build()
    encoder.word_embedding.assign(np.random.default_rng(0).normal(size=encoder.word_embedding.shape))
    memory = Memory(config.n_layer, 1, MEMORY_LEN, config.d_model)

    def label(token_id):
        return {SEP_ID: "SEP", CLS_ID: "CLS"}.get(token_id, str(token_id - len(SYMBOLS)))

    remembered, read = [], []
    for step, ids in enumerate(segments.ids):
        features = memory.read(stream_start=np.array([step == 0]))
        vectors = features["memory"][0, 0].numpy()  # of the first layer: the tokens' embeddings
        distances = np.linalg.norm(vectors[:, None] - encoder.word_embedding.numpy(), axis=-1)
        slots = zip(distances.argmin(axis=1), features["memory_mask"][0].numpy())
        remembered.append([label(token_id) if holds else EMPTY for token_id, holds in slots])
        read.append([label(token_id) for token_id in ids])
        outputs = encoder({"input_word_ids": ids[None], **features})
        memory.write(outputs["next_memory"], outputs["next_memory_mask"])
    return remembered, read


def lay_out_streams() -> tuple[np.ndarray, np.ndarray]:
    """Asks the reader which segment each row reads at each step.

    Returns:
        The stream's number and the segment's number in it, int [rows, steps] each.
    """
    spec = RecordSpec(seq_len=512, reuse_len=256, num_predict=85, vocab_size=32000)
    # A shard for each stream: then a shard's name says which stream, and a record's number which segment.
    shards = [
        Shard(str(stream), 0, stream, count, 0, 0, "", "", {}) for stream, count in enumerate(STREAM_LENGTHS)
    ]
    manifest = Manifest.create(
        spec, stream_segments=max(STREAM_LENGTHS), shards=tuple(shards), folder=pathlib.Path()
    )
    steps = [reader.records_of_step(manifest, BATCH_SIZE, step, STREAM_SEED) for step in range(NUM_STEPS)]
    layout = np.array(steps, dtype=int)  # [steps, rows, 2]
    return layout[..., 0].T, layout[..., 1].T


def draw_order():
    """Draws ranks over positions."""
    order = sample_order()
    figure, axis = _figure(4.7)
    positions = np.arange(len(order.tokens))
    context = ~order.is_target & ~order.special
    kinds = (
        (context, "o", GREY, "context: visible from the start of its part"),
        (order.is_target, "s", ORANGE, "target: predicted at this point of the order"),
        (order.special, "D", BLUE, "SEP, CLS: in the order, never predicted"),
    )
    for part in (positions < REUSE_LEN, positions >= REUSE_LEN):
        path = positions[part & ~context]
        path = path[np.argsort(order.rank[path])]
        axis.plot(path, order.rank[path], color="#777777", linestyle=":", zorder=1)
    for which, marker, color, label in kinds:
        look = {"s": 110, "marker": marker, "color": color, "edgecolor": "black", "zorder": 2}
        axis.scatter(positions[which], order.rank[which], label=label, **look)
    for position, rank in enumerate(order.rank):
        height = -20 if context[position] else 10
        axis.annotate(rank, (position, rank), (0, height), textcoords="offset points", ha="center", size=10)
    axis.axvline(REUSE_LEN - 0.5, color="black", linewidth=0.8)
    _name_parts(axis)
    _name_positions(axis.xaxis, order)
    axis.set_xlabel("position in the text (never changes)")
    axis.set_ylabel("rank in the factorization order")
    axis.set_yticks(range(0, len(order.tokens) + 2, 2))
    axis.set_ylim(-2.3, len(order.tokens) + 1.8)
    figure.legend(loc="outside lower center", ncols=1, fontsize=10)
    return figure


def draw_masks():
    """Draws what each stream sees."""
    order = sample_order()
    content, query = stream_masks(order)
    figure, axes = _figure(5.2, columns=2)
    itself = np.eye(len(content), dtype=bool)
    colors = np.array([to_rgb(color) for color in ("white", BLUE, ORANGE, GREY)])
    content_image = np.where(content & itself, 2, content.astype(int))
    query_image = np.where(order.is_target[:, None], query.astype(int), 3)
    titles = "content stream h: every position", "query stream g: targets only"
    for axis, image, title in zip(axes, (content_image, query_image), titles):
        axis.imshow(colors[image], interpolation="nearest")
        axis.set_title(title, fontsize=12, pad=22)
        edges = np.arange(-0.5, len(content))
        axis.set_xticks(edges, minor=True)
        axis.set_yticks(edges, minor=True)
        axis.grid(which="minor", color="#BBBBBB", linewidth=0.6)
        axis.tick_params(which="minor", length=0)
        for line in (axis.axvline, axis.axhline):
            line(REUSE_LEN - 0.5, color="black", linewidth=1.6)
        _name_parts(axis)
        _name_positions(axis.xaxis, order)
        _name_positions(axis.yaxis, order)
        axis.spines[:].set_visible(False)
        axis.set_xlabel("key: the token that is looked at")
    axes[0].set_ylabel("query: the token that looks")
    for target in np.flatnonzero(order.is_target):
        axes[1].text(target, target, "×", color=ORANGE, ha="center", va="center", size=15, weight="bold")
    cross = {"color": ORANGE, "marker": "$×$", "linestyle": "", "markersize": 9}
    handles = [
        Patch(facecolor=BLUE, label="sees the key"),
        Patch(facecolor=ORANGE, label="sees itself"),
        Line2D([], [], label="does not see itself", **cross),
        Patch(facecolor="white", edgecolor="#BBBBBB", label="does not see it"),
        Patch(facecolor=GREY, label="not computed"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=9.5, columnspacing=1.2)
    return figure


def draw_memory():
    """Draws what the memory holds at each step of a stream."""
    remembered, read = remembered_steps()
    figure, axis = _figure(3.7)
    for step, (slots, tokens) in enumerate(zip(remembered, read)):
        start = step * MEMORY_REUSE_LEN
        for index, text in enumerate(slots):
            color = "white" if text == EMPTY else LIGHT_ORANGE
            _cell(axis, start - MEMORY_LEN + index, step, text, color, "///" if text == EMPTY else None)
        for index, text in enumerate(tokens):
            _cell(axis, start + index, step, text, LIGHT_BLUE if index < MEMORY_REUSE_LEN else GREY)
        axis.plot([start - 0.5] * 2, [step - 0.43, step + 0.43], color="black", linewidth=2.5)
    kinds = (
        ("white", "///", "memory: empty, hidden"),
        (LIGHT_ORANGE, None, "memory: visible to all queries"),
        (LIGHT_BLUE, None, "segment's reused part: goes into the memory"),
        (GREY, None, "A SEP B SEP CLS: does not"),
    )
    patches = [
        Patch(facecolor=color, edgecolor="black", hatch=hatch, label=text) for color, hatch, text in kinds
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=2, fontsize=10)
    axis.set_xlim(-MEMORY_LEN - 0.7, (MEMORY_STEPS - 1) * MEMORY_REUSE_LEN + MEMORY_SEQ_LEN - 0.3)
    axis.set_ylim(MEMORY_STEPS - 0.4, -0.6)
    axis.set_yticks(range(MEMORY_STEPS))
    axis.set_xticks([])
    axis.spines[:].set_visible(False)
    axis.set_ylabel("step")
    axis.set_xlabel("the stream's text from left to right; numbers count its tokens")
    return figure


def draw_rows():
    """Draws which segment of which stream each row reads."""
    streams, segments = lay_out_streams()
    figure, axis = _figure(2.7)
    for row, step in np.ndindex(streams.shape):
        stream, segment = streams[row, step], segments[row, step]
        label = f"{chr(ord('A') + stream)}{segment}"
        _cell(axis, step, row, label, STREAM_COLORS[stream], fontsize=11)
        if segment == 0:
            axis.plot([step - 0.5] * 2, [row - 0.43, row + 0.43], color="black", linewidth=5)
    axis.set_xlim(-0.7, NUM_STEPS - 0.4)
    axis.set_ylim(BATCH_SIZE - 0.45, -0.55)
    axis.set_xticks(range(NUM_STEPS))
    axis.set_yticks(range(BATCH_SIZE))
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_xlabel("step")
    axis.set_ylabel("row of the batch")
    bar = Line2D([], [], color="black", marker="|", markersize=14, markeredgewidth=5, linestyle="")
    label = "stream_start: the row begins a stream, its memory is hidden"
    figure.legend([bar], [label], loc="outside lower center", fontsize=10)
    return figure


PICTURES = {
    "factorization_order": draw_order,
    "masks": draw_masks,
    "memory": draw_memory,
    "streams_on_rows": draw_rows,
}


def draw_all(folder: pathlib.Path):
    """Writes every picture as a PNG file, the same bytes each time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        with matplotlib.rc_context(STYLE):
            draw().savefig(folder / f"{name}.png", metadata={"Software": None}, pil_kwargs={"optimize": True})


def _figure(height: float, columns: int = 1):
    """Makes a figure without pyplot, which would need a display and keep it open."""
    figure = Figure(figsize=(8.4, height))
    return figure, figure.subplots(1, columns)


def _cell(axis, x: float, y: float, text: str, color: str, hatch: str | None = None, fontsize: float = 8.5):
    corner = (x - 0.5, y - 0.38)
    axis.add_patch(Rectangle(corner, 1, 0.76, facecolor=color, edgecolor="#555555", hatch=hatch))
    axis.text(x, y, text, ha="center", va="center", fontsize=fontsize if len(text) < 3 else 0.82 * fontsize)


def _name_parts(axis):
    middles = {"reused part": REUSE_LEN / 2, "A SEP B SEP CLS": (REUSE_LEN + len(TOKENS)) / 2}
    for name, middle in middles.items():
        x = middle / len(TOKENS)
        axis.text(x, 1.015, name, transform=axis.transAxes, ha="center", size=10, color="#444444")


def _name_positions(axis, order: Order):
    axis.set_ticks(range(len(order.tokens)), order.tokens, fontsize=10)
    for tick, is_target in zip(axis.get_ticklabels(), order.is_target):
        if axis.axis_name == "x":
            tick.set(rotation=50, ha="right", rotation_mode="anchor")
        if is_target:
            tick.set(color=ORANGE, fontweight="bold")


def main(_: Sequence[str]):
    draw_all(pathlib.Path(flags.FLAGS.output_dir))


if __name__ == "__main__":
    flags.DEFINE_string("output_dir", "docs/concepts/pictures", "Folder of the pictures.")
    app.run(main)
