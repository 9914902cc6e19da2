"""Writes matplotlib figures to files, in fonts that have the characters of their texts."""

import warnings
from typing import Any

from absl import logging
from etils import epath

from xlnet_tf import files
from xlnet_tf.errors import UserError

INSTALL_FONT = (
    "Install a font, for example the package fonts-noto-cjk (Chinese, Japanese, Korean) or fonts-noto-core "
    "(others)"
)


def fonts_for(text: str) -> tuple[list[str], set[str]]:
    """Returns fonts that together cover a text, and the characters that no font has."""
    from matplotlib import font_manager

    manager = font_manager.fontManager
    listed = {font.fname for font in manager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in listed:  # installed after matplotlib wrote its list
            manager.addfont(path)
    # matplotlib 3.10, the last for Python 3.10, reads only the first font of a file.
    path_of = getattr(font_manager, "FontPath", lambda path, index: path)
    paths = {
        font.name: path_of(font.fname, getattr(font, "index", 0))
        for font in sorted(manager.ttflist, key=lambda font: font.name)
        # Last Resort draws boxes for all characters.
        if (font.weight, font.style) == (400, "normal") and not font.name.startswith("Last Resort")
    }
    families, missing = ["DejaVu Sans"], set(text)

    def coverage(family):
        font = font_manager.get_font(paths[family])
        return {character for character in missing if font.get_char_index(ord(character))}

    missing -= coverage(families[0])
    covered = {family: coverage(family) for family in paths if missing}
    while missing:
        best = max(covered, key=lambda family: len(covered[family] & missing))
        if not covered[best] & missing:
            break
        families.append(best)
        missing -= covered[best]
    return families, missing


def new(width: float, height: float) -> Any:
    """Returns an empty matplotlib figure of a size in inches, whose parts do not overlap."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, path: epath.PathLike, dpi: int) -> None:
    """Writes a figure, its texts not parsed as formulas and in fonts that cover them, or else a warning."""
    kind, known = epath.Path(path).suffix[1:] or "png", figure.canvas.get_supported_filetypes()
    if kind not in known:
        raise UserError(f"{path}: expected a name that ends in .{', .'.join(sorted(known))}")
    import matplotlib
    from matplotlib.text import Text

    for text in figure.findobj(Text):  # labels and pieces may have dollar signs
        text.set_parse_math(False)
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.fonttype": "none"}):
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # said below
        figure.draw_without_rendering()  # names of categories are written only now
        texts = figure.findobj(Text)
        families, missing = fonts_for("".join("".join(text.get_text().split()) for text in texts))
        if missing and kind != "svg":
            shown = " ".join(sorted(missing)[:10])
            logging.warning("%s: no installed font has %s. %s", path, shown, INSTALL_FONT)
        for text in texts:
            text.set_fontfamily([*families, "sans-serif"])
        with files.replacing(path, "wb") as file:
            figure.savefig(file, format=kind, dpi=dpi)
