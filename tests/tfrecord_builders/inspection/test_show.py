"""run_scripts/inspect_records.py: what a person sees of a record, and of tokens."""

import json
import re
import shutil

import numpy as np
import pytest

from run_scripts import inspect_records
from run_scripts.inspect_records import InspectOptions
from tests.helpers.full_disk import files_of_at_most
from tests.helpers.records.builders import jsonl
from tfrecord_builders.inspection import plot_mask, tokens
from tfrecord_builders.inspection import show as inspect_show
from xlnet_tf import figures
from xlnet_tf.errors import UserError
from xlnet_tf.records.shards import read_shard
from xlnet_tf.text.tokenizer import XLNetTokenizer


def test_show(small_records):
    number = small_records.shards[0].records + 7  # in the second shard
    text = inspect_show.describe(small_records, number, target=1)
    columns = read_shard(small_records.path(small_records.shards[1]), small_records.spec, 7, 1)
    targets = columns["target_positions"][0]
    order = targets[np.argsort(columns["permutation_rank"][0][targets])]
    assert f"record {number} of {small_records.records:,}: {small_records.shards[1].file}, record 7" in text
    assert "segment 1 of the stream" in text and "read forward" in text
    head, view = text.split("target 1 in the order")
    laid_out, listed = head.split("order of prediction")
    assert len(re.findall(r"\[\S+\]", laid_out)) == 5
    assert [int(n) for n in re.findall(r"(\d+):\S", listed.split("\n", 1)[1])] == order.tolist()
    assert f"position {order[1]}," in view and "1 targets predicted before" in view
    assert view.count("<?>") == 2  # the legend's and the target's
    last = inspect_show.describe(small_records, number, target=4)
    assert "4 targets predicted before" in last and "reused" in last
    assert "read backward" in inspect_show.describe(small_records, small_records.shards[0].forward_segments)
    for record, target, what in ((0, 5, "target is 5"), (small_records.records, None, "record is")):
        with pytest.raises(UserError, match=f"{what}.* expected 0 to "):
            inspect_show.describe(small_records, record, target)


def run(records, **given):
    """Runs the script's flags in this process; returns the exit status."""
    return inspect_records.run(inspect_records.InspectOptions(records=str(records), num_workers=1, **given))


def test_what_is_asked_for_is_done(small_records, tmp_path, capsys):
    from matplotlib import image

    shutil.copytree(small_records.folder, tmp_path / "damaged")
    path = tmp_path / "damaged" / small_records.shards[1].file
    path.write_bytes(path.read_bytes()[::-1])
    assert run(tmp_path / "damaged", check=True, json=True) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["sound"] and report["failures"][0]["first"][0]["file"] == path.name
    for options, printed in (
        ({"check": True}, "are sound"),
        ({"diff": small_records.folder}, "the sets are the same"),
        ({"stats": True, "json": True}, f'"records": {small_records.records}'),
        ({"record": 3, "png": str(tmp_path / "mask.png"), "first": 8, "count": 12}, "record 3 of"),
    ):
        assert run(small_records.folder, **options) == 0
        assert printed in capsys.readouterr().out
    picture = image.imread(tmp_path / "mask.png")
    assert picture.shape[0] > 300 and picture.shape[1] > 700
    colors = (picture[..., :3] * 255).round().astype(int) @ [0x10000, 0x100, 1]
    assert {0x9ECAE1, 0xE6550D, 0x222222} <= set(np.unique(colors).tolist())


def test_what_does_not_go_together_is_refused(small_records):
    for wrong, message in (
        ({"check": True, "png": "mask.png"}, "--png is given with --check"),
        ({"png": "mask.txt"}, "png is 'mask.txt', expected .*.svg or .pdf"),
        ({"json": True}, "--json is given to show a record"),
        ({"examples": "x", "stats": True}, "--examples is given with --records and --stats, expected --page"),
    ):
        with pytest.raises(UserError, match=message):
            run(small_records.folder, **wrong)


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draws like `plot_mask.draw`; returns the figure instead of writing it."""
    from matplotlib.figure import Figure

    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))

    def draw(*args, **options):
        plot_mask.draw(*args, str(tmp_path / "mask.png"), **options)
        return figures.pop()

    return draw


@pytest.fixture
def only_dejavu(monkeypatch):
    """A machine on which matplotlib knows no font but its default; returns its other fonts by name."""
    from matplotlib import font_manager

    known = font_manager.fontManager.ttflist
    default = [font for font in known if font.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", default)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    return {font.name: font.fname for font in known if (font.weight, font.style) == (400, "normal")}


def test_the_mask_picture_explains_itself(small_records, drawn):
    import matplotlib

    settings = dict(matplotlib.rcParams)
    figure = drawn(small_records, 3)
    assert dict(matplotlib.rcParams) == settings
    _, _, record = inspect_show.load_record(small_records, 3)
    turns = {int(step[0]): f" ({turn})" for turn, step in enumerate(record.steps(), 1)}
    pieces = map(XLNetTokenizer(model_file=small_records.tokenizer_path).id_to_piece, record.ids.tolist())
    expected = [piece + turns.get(n, "") for n, piece in enumerate(pieces)]
    for axis, title in zip(figure.axes, ("content", "query"), strict=True):
        assert axis.get_title().split()[0] == title
        assert axis.get_xlabel().startswith("key") and axis.get_ylabel().startswith("query")
        for labels in (axis.get_xticklabels(), axis.get_yticklabels()):
            assert [label.get_text() for label in labels] == expected
    assert len(turns) == 5 and [t.get_text() for t in figure.legends[0].texts] == list(plot_mask.LEGEND)
    figure.draw_without_rendering()
    for artist in (figure._suptitle, *(axis.title for axis in figure.axes), *figure.legends):
        box = artist.get_window_extent()
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, artist  # nothing is cut off


def test_targets_that_are_predicted_together_have_one_number(build, drawn, tmp_path):
    figure = drawn(build(tmp_path, objective="denoising"), 3)
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert sum(label.endswith(" (1)") for label in labels) == 5 and not any("(2)" in x for x in labels)


def test_a_mask_too_large_for_labels_says_how_to_see_them(small_records, drawn, monkeypatch):
    monkeypatch.setattr(plot_mask, "MOST_LABELLED", 8)
    assert "draw up to 8 positions (--count)" in drawn(small_records, 3, count=9).get_suptitle()
    title = drawn(small_records, 3, count=8).get_suptitle()
    assert "record 3 " in title and "the order in which the targets are predicted" in title
    with pytest.raises(UserError, match="window of 8 positions from 32"):
        drawn(small_records, 3, first=32, count=8)


@pytest.mark.filterwarnings("error")
def test_pictures_say_which_characters_no_font_has(only_dejavu, tmp_path, caplog):
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().barh(["\u65e5\u672c $x$"], [1])
    figures.save(figure, tmp_path / "labels.svg", dpi=100)
    shown = (tmp_path / "labels.svg").read_text()
    assert "sans-serif" in shown and "\u65e5\u672c $x$</text>" in shown and not caplog.text
    figures.save(figure, tmp_path / "labels.png", dpi=100)
    assert "labels.png: no installed font has \u65e5 \u672c. Install a font" in caplog.text


def test_labels_use_the_fonts_that_were_found(small_records, only_dejavu, drawn, monkeypatch, caplog):
    from matplotlib import font_manager

    tokenizer = XLNetTokenizer(model_file=small_records.tokenizer_path)
    ids = inspect_show.load_record(small_records, 3)[2].ids[:8]
    common = np.bincount(ids).argmax()
    there, piece = np.flatnonzero(ids == common).tolist(), tokenizer.id_to_piece(int(common))
    monkeypatch.setattr(plot_mask, "visible_piece", lambda p: "\u1d81" if p == piece else p)

    labels = drawn(small_records, 3, count=8).axes[0].get_xticklabels()
    assert [n for n, label in enumerate(labels) if label.get_text().startswith(f"id {common}")] == there
    assert caplog.text.count("fonts-noto-cjk") == 1

    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [only_dejavu["STIXGeneral"]])
    labels = drawn(small_records, 3, count=8).axes[0].get_xticklabels()
    assert {labels[n].get_text()[0] for n in there} == {"\u1d81"}
    assert labels[0].get_fontfamily() == ["DejaVu Sans", "STIXGeneral", "sans-serif"]
    assert caplog.text.count("fonts-noto-cjk") == 1


def test_a_picture_that_cannot_be_written(small_records, tmp_path):
    full = pytest.raises(UserError, match=r"^cannot write .*mask.png: File too large. Make")
    with files_of_at_most(1000), full:
        plot_mask.draw(small_records, 3, str(tmp_path / "mask.png"), count=4)
    with pytest.raises(UserError, match=r"mask.txt: expected a name that ends in .*\.pdf, .*\.png"):
        plot_mask.draw(small_records, 3, str(tmp_path / "mask.txt"), count=4)
    assert not list(tmp_path.iterdir())


TEXTS = ["bane toreee, 5,", "mi ba", "5, ne"]


@pytest.fixture(scope="module")
def folder(small_tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens")
    small_tokenizer.save_pretrained(path / "model")
    rows = [{"text": text, "input_ids": small_tokenizer.encode(text)} for text in TEXTS]
    rows[1]["input_ids"] = [*rows[1]["input_ids"], 99_999]
    jsonl(path / "rows.jsonl", [*rows, {"text": "ba"}])
    (path / "texts.txt").write_text("\n".join(TEXTS))
    return path


def test_ids_of_another_pipeline(folder):
    found = tokens.compare(f"{folder}/model", f"{folder}/rows.jsonl")
    name = f"input_ids of {folder}/rows.jsonl"
    assert (found["texts"], found["with_ids"], found["others"][name]) == (4, 3, 1)
    assert found["examples"][name][0]["there"][-1] == "99999"
    assert "99999; here" in tokens.table(found)


def test_installed_libraries_split_as_we_do(folder, capsys):
    options = InspectOptions(tokens_of=f"{folder}/model", input=f"{folder}/texts.txt")
    assert inspect_records.run(options) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("3 texts; split differently by\n  sentencepiece ")
    assert [line.split()[-1] for line in shown.splitlines()[1:3]] == ["0", "0"]


def test_files_that_have_no_texts_and_options_that_do_not_belong_together(folder):
    for content, message in (("\n", "has no text"), ('{"text": 5}', "line 1: "), ('{"a": 5}', "`text`")):
        (folder / "bad").write_text(content)
        with pytest.raises(UserError, match=message):
            tokens.compare(f"{folder}/model", f"{folder}/bad")
    for options, message in (
        ({}, "--tokens_of and --input belong together"),
        ({"input": "x", "stats": True}, "--tokens_of is given with --stats"),
    ):
        with pytest.raises(UserError, match=message):
            inspect_records.run(InspectOptions(tokens_of=str(folder), **options))
