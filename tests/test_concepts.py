"""docs/concepts: excerpts are compared with the code, examples and pictures are recomputed."""

import ast
import pathlib
import re
import sys

import numpy as np
import pytest
import tensorflow as tf
from matplotlib import image
from matplotlib.colors import to_rgb

from docs import draw_pictures
from tests.helpers.records.synthetic import make_set
from xlnet_tf.layers import masks
from xlnet_tf.layers.attention import AttentionWeights, attention_scores
from xlnet_tf.layers.kernels.reference import ReferenceKernels
from xlnet_tf.layers.masks import AttentionContext
from xlnet_tf.records import ranks
from xlnet_tf.records.reader import pretraining_dataset

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs/concepts"
PAGE = "\n".join(page.read_text() for page in sorted(DOCS.glob("*.md")))
EXCERPT = re.compile(
    r"In \[`(?P<path>[\w/.]+)`\]\([\w/.-]+\), `(?P<name>[\w.]+)`:\n<!-- .*? -->\n```python\n(?P<code>.*?)```",
    re.S,
)
EXCERPTS = [match.groupdict() for match in EXCERPT.finditer(PAGE)]


def function_source(path, name):
    """Returns the source of a function, of a method by `Class.method`, or of all methods of that name."""
    source = (REPOSITORY / path).read_text()
    found = [
        ast.get_source_segment(source, node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name.split(".")[0]
    ]
    if "." in name:
        found = [text[text.index(f"def {name.split('.')[1]}(") :] for text in found]
    assert found, f"{path} has no {name}"
    return "\n".join(found)


@pytest.mark.parametrize("excerpt", EXCERPTS, ids=[excerpt["name"] for excerpt in EXCERPTS])
def test_excerpts_are_the_code(excerpt):
    source = " ".join(function_source(excerpt["path"], excerpt["name"]).split())
    for part in re.split(r"^ *\.\.\.\n", excerpt["code"], flags=re.M):
        quoted = " ".join(part.split())
        assert quoted in source
        source = source[source.index(quoted) + len(quoted) :]


def test_the_pages_show_the_code_the_pictures_and_equations_that_github_renders():
    assert PAGE.count("```python") == len(EXCERPTS) >= 10
    assert set(re.findall(r"\]\((?:[^)]*/)?(\w+)\.png\)", PAGE)) == set(draw_pictures.PICTURES)
    equations = re.findall(r"\$\$?[^$]+\$\$?", PAGE)
    assert len(equations) > 20 and PAGE.count("$$") == 2 * len(re.findall(r"^\$\$.*\$\$$", PAGE, re.M))
    for equation in equations:
        assert not re.search(r"[<>*]|\\operatorname|\\[,;{}\\]", equation), equation
        assert equation.count("{") == equation.count("}")


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="the last matplotlib for Python 3.10 places letters otherwise"
)
def test_committed_pictures_are_what_the_script_draws(tmp_path):
    draw_pictures.draw_all(tmp_path)
    for name in draw_pictures.PICTURES:
        drawn, committed = (image.imread(folder / f"{name}.png") for folder in (tmp_path, DOCS / "pictures"))
        assert drawn.shape == committed.shape, name
        # A cell of a mask has 1.3e-3 of the pixels; other versions of matplotlib may move a letter.
        changed = (np.abs(drawn - committed).max(axis=-1) > 0.3).mean()
        assert changed < 5e-4, f"{name} changed: run python -m docs.draw_pictures"
        assert (DOCS / "pictures" / f"{name}.png").stat().st_size < 200_000
        assert (committed[0] == 1).all() and (committed[..., 3:] == 1).all()  # opaque and white
    assert len({to_rgb(color) for color in draw_pictures.STREAM_COLORS}) >= len(draw_pictures.STREAM_LENGTHS)


def test_example_of_four_tokens():
    """The order 3, 2, 4, 1 and the two masks that the page prints."""
    [block] = re.findall(r"```text\nrank +(.*?)```", PAGE, re.S)
    rank, *rows = [line for line in block.splitlines() if line and "stream" not in line]
    rank = np.array(rank.split(), int)
    assert (np.argsort(rank) + 1).tolist() == [3, 2, 4, 1]
    numbers = np.array([row.split() for row in rows], int)
    content, query = ranks.expand(rank, np.ones(4, bool))
    np.testing.assert_array_equal(numbers, np.concatenate([query, content], axis=1))
    assert not numbers[2, :4].any()  # the first in the order


def test_the_order_is_as_the_page_describes_it():
    order = draw_pictures.sample_order()
    header, _, values = re.findall(r"^\|.*\|$", PAGE[PAGE.index("| token | New") :], re.M)[:3]
    assert tuple(header.split(" | ")[1:]) == (*order.tokens[:-1], order.tokens[-1] + " |")
    assert [int(value) for value in re.findall(r"\d+", values)] == order.rank.tolist()
    rank = dict(zip(order.tokens, order.rank))
    assert rank["York"] < rank["New"] and rank["sleeps"] < rank["hurry"]
    assert order.is_target.sum() == 4


def test_masks_are_as_the_page_describes_them():
    order = draw_pictures.sample_order()
    content, query = draw_pictures.stream_masks(order)
    np.testing.assert_array_equal((content, query), ranks.expand(order.rank, order.is_target))
    assert content[0, 1] and not content[1, 0]  # New sees York
    reuse_len = draw_pictures.REUSE_LEN
    assert not content[:reuse_len, reuse_len:].any()


def test_memory_and_segment_are_continuous_text():
    remembered, read = draw_pictures.remembered_steps()
    assert len(remembered) == draw_pictures.MEMORY_STEPS
    assert remembered[0] == [draw_pictures.EMPTY] * draw_pictures.MEMORY_LEN
    reuse_len = draw_pictures.MEMORY_REUSE_LEN
    past = []
    for slots, tokens in zip(remembered, read):
        held = [token for token in slots if token != draw_pictures.EMPTY]
        assert held == past[len(past) - len(held) :] and len(held) == min(len(past), draw_pictures.MEMORY_LEN)
        past += tokens[:reuse_len]
        text = [token for token in held + tokens if token.isdigit()]
        assert [int(token) for token in text] == list(range(int(text[0]), int(text[0]) + len(text)))
        assert [token for token in tokens if not token.isdigit()] == ["SEP", "SEP", "CLS"]


def test_rows_are_those_of_the_reader(tmp_path):
    """The picture's segments and flags equal what the reader returns for records on disk."""
    streams, segments = draw_pictures.lay_out_streams()
    lengths = draw_pictures.STREAM_LENGTHS
    records = make_set(tmp_path, [[(length, 0) for length in lengths]], stream_segments=max(lengths))
    batches = pretraining_dataset(records, draw_pictures.BATCH_SIZE, seed=draw_pictures.STREAM_SEED)
    first = np.cumsum((0, *lengths))[:-1]  # record of each stream
    for step, batch in enumerate(batches.take(draw_pictures.NUM_STEPS)):
        expected = first[streams[:, step]] + segments[:, step]
        np.testing.assert_array_equal(batch["input_word_ids"][:, 0], expected)
        np.testing.assert_array_equal(batch["stream_start"], segments[:, step] == 0)


def test_score_of_a_pair_is_the_equation_of_the_page():
    """Compared after the softmax, as the code drops per-query constants."""
    rng = np.random.default_rng(0)
    query_len, memory_len, heads, size, width = 3, 2, 2, 4, 6
    key_len = memory_len + query_len
    shapes = 5 * [[width, heads, size]] + 3 * [[heads, size]] + [[2, heads, size]]
    weights = AttentionWeights(*(rng.normal(size=shape).astype(np.float32) for shape in shapes))
    q = rng.normal(size=[heads, query_len, size]).astype(np.float32)
    k = rng.normal(size=[heads, key_len, size]).astype(np.float32)
    type_ids = np.array([0, 1, 1])
    mismatch = masks.segment_mismatch(type_ids[None], memory_len)
    kernels = ReferenceKernels()
    positions = kernels.encode_positions(
        width, query_len, key_len, attention_type="bi", clamp_len=-1, direction=None, rate=0.0, seed=None
    )
    position_keys = kernels.project_positions(positions, weights.position, tf.float32)
    context = AttentionContext(query_len, key_len, segment_mismatch=mismatch[:, None])
    scores = attention_scores(weights, q[None], k[None], position_keys, context, kernels)

    expected = np.empty([heads, query_len, key_len])
    frequencies = 10000.0 ** (-2 * np.arange(width // 2) / width)
    u, v, b = weights.content_bias, weights.position_bias, weights.segment_bias
    for n, i, j in np.ndindex(expected.shape):
        angles = (memory_len + i - j) * frequencies
        r = np.concatenate([np.sin(angles), np.cos(angles)]) @ weights.position[:, n]
        key_type = 0 if j < memory_len else type_ids[j - memory_len]
        s = weights.segment_embedding[int(type_ids[i] != key_type), n]
        terms = (q[n, i] + u[n]) @ k[n, j], (q[n, i] + v[n]) @ r, (q[n, i] + b[n]) @ s
        expected[n, i, j] = sum(terms) / np.sqrt(size)
    np.testing.assert_allclose(tf.nn.softmax(scores[0]), tf.nn.softmax(expected), rtol=1e-4, atol=1e-6)
