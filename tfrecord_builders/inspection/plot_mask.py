"""Draws the permutation mask of a record as a picture."""

import numpy as np
from absl import logging

from tfrecord_builders.inspection.show import load_record, visible_piece
from xlnet_tf.errors import UserError
from xlnet_tf.records.manifest import Manifest
from xlnet_tf.text.special_tokens import CLS_ID, SEP_ID
from xlnet_tf.text.tokenizer import XLNetTokenizer

MOST_LABELLED = 64  # tokens whose pieces still fit along the sides of a picture


def fonts_for(text: str) -> tuple[list[str], list[str]]:
    """Finds installed fonts that together have all characters of a text.

    Returns:
        (families for matplotlib, its default first; characters that no font has).
    """
    from matplotlib import font_manager

    families, missing = ["DejaVu Sans"], set(text)
    # Last Resort draws boxes for all characters.
    real = (font for font in font_manager.fontManager.ttflist if not font.name.startswith("Last Resort"))
    entries = sorted(real, key=lambda font: (font.weight != 400, font.name))
    default = [font for font in entries if font.name == families[0]]
    for font in default + entries:
        if not missing:
            break
        found = {c for c in missing if ord(c) in font_manager.get_font(font.fname).get_charmap()}
        if found and font.name not in families:
            families.append(font.name)
        missing -= found
    return families, sorted(missing)


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
        raise UserError(
            f"window of {'all' if count is None else count} positions from {first}, expected some of 0 to "
            f"{seq_len - 1}: see --first and --count"
        )
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
        pieces = [visible_piece(tokenizer.id_to_piece(i)) for i in record.ids[window]]
        families, missing = fonts_for("".join(pieces))
        matplotlib.rcParams["font.family"] = families
        if missing:
            logging.warning(
                "no installed font has %s: the picture shows ids of pieces. Install fonts-noto-cjk (Chinese, "
                "Japanese, Korean) or fonts-noto-core (Arabic, Hindi and others) to see them",
                " ".join(missing[:10]),
            )
            pieces = [str(i) for i in record.ids[window]]
        for turn, position in enumerate(np.concatenate([*record.steps(), []]).astype(int), 1):
            if first <= position < last:
                pieces[position - first] += f" ({turn})"
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
        f"{len(record.targets)} targets): rows see the coloured columns"
        + ("; (1), (2), ... is the order of prediction" if labelled else ""),
        fontsize=14,
    )
    handles = [
        patches.Patch(facecolor=c, edgecolor="#999999", label=n) for c, n in zip(colors, names, strict=True)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=11)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
