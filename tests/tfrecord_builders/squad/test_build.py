"""Examples of SQuAD: every answer is where its positions say, and nothing is left out silently."""

import dataclasses
import gzip
import json
import re

import numpy as np
import pytest

from tests.helpers.records.builders import PASSAGE, question
from tests.helpers.records.builders import squad_file as write
from tests.helpers.records.labelled import table
from tfrecord_builders.squad.build import SKIPPED_FILE, SquadOptions, build_squad
from xlnet_tf.errors import UserError
from xlnet_tf.records.passages import Passage
from xlnet_tf.text.graph.passage_windows import window_tokens
from xlnet_tf.text.special_tokens import SEP_ID


@pytest.fixture
def build(tmp_path, tokenizer_file):
    """Builds splits of questions about PASSAGE: split -> its set."""

    def build(context=PASSAGE, version="1.1", sizes=(), **splits):
        files = {
            split: write(tmp_path / f"{split}.json", *questions, context=context, version=version)
            for split, questions in splits.items()
        }
        sizes = {"seq_len": 40, "max_question_len": 8, "stride": 9, **dict(sizes)}
        return build_squad(SquadOptions(str(tokenizer_file), str(tmp_path / "out"), **files, **sizes))

    return build


def marked_text(examples, record):
    """The raw text of a record's answer; None if there is none."""
    arrays, line = examples.arrays(), list(examples.sidecar())[record]
    if arrays["is_impossible"][record]:
        return None
    passage = Passage.read_all(examples.folder)[line["passage"]]
    first, last = (line["first"] + arrays[name][record] for name in ("answer_first", "answer_last"))
    return passage.text[passage.begins[first] : passage.ends[last]]


def test_answers_in_segments_are_the_characters_that_were_marked(build):
    """Any answer, also one that begins in a segment and ends in the next."""
    words = [match.span() for match in re.finditer(r"\w\S*", PASSAGE)]
    spans = [(words[k][0], words[min(k + k % 4, len(words) - 1)][1]) for k in range(len(words))]
    asked = [question("Ka?" + " sol" * (k % 4) + str(k), PASSAGE[b:e], b) for k, (b, e) in enumerate(spans)]
    sizes = {"seq_len": 64, "segment_len": 16, "max_question_len": 12, "stride": 20}
    examples = build(train=asked, sizes=sizes)["train"]
    assert examples.settings["segment_len"] == 16 and not examples.skipped
    arrays, [passage] = examples.arrays(), Passage.read_all(examples.folder)
    positions = np.stack([arrays["answer_first"], arrays["answer_last"]], 1)
    tokens = window_tokens(arrays["answer_mask"], positions).numpy()
    found, crossing = set(), 0
    for record, (line, (first, last)) in enumerate(zip(examples.sidecar(), tokens)):
        if arrays["is_impossible"][record]:
            assert first == last == line["length"]
            continue
        text = passage.text[passage.begins[line["first"] + first] : passage.ends[line["first"] + last]]
        assert [text] == line["answers"]
        found.add(line["id"])
        crossing += len({*positions[record] // 16}) > 1
    assert len(found) == len(asked) and crossing > 5


def test_unusable_training_questions_are_listed(build):
    train = [question("good?", "sol"), question("moved?", "sol", 20), question("elsewhere?", "nowhere", 3)]
    train += [question("empty?", " ", 3), question("unmarked?"), question("marked?", is_impossible=True)]
    train += [question("both?", "sol", is_impossible=True), question("long?", PASSAGE[:150])]
    examples = build(train=[*train, question(" ", "sol")])["train"]
    assert {reason: skipped["count"] for reason, skipped in examples.skipped.items()} == {
        "answer not in the passage": 2,
        "no answer to a question that is not marked is_impossible": 1,
        "answer to a question marked is_impossible": 1,
        "answer in no window": 1,
        "empty question": 1,
    }
    listed = [json.loads(line) for line in (examples.folder / SKIPPED_FILE).read_text().splitlines()]
    assert [entry["id"] for entry in listed] == ["elsewhere?", "empty?", "unmarked?", "both?", "long?", " "]
    names = {"id": "elsewhere?", "question": "elsewhere?", "answers": ["nowhere"]}
    assert listed[0] == {"reason": "answer not in the passage", **names}
    assert "data[0].paragraphs[0].qas[2]" in examples.skipped["answer not in the passage"]["places"][0]
    lines = list(examples.sidecar())
    assert {line["id"] for line in lines} == {"good?", "moved?", "marked?"}
    assert examples.statistics["questions with a wrong answer_start, repaired"] == 1
    assert examples.statistics["questions"] == 9 and examples.settings["unanswerable"] is True
    marked = [record for record, line in enumerate(lines) if line["id"] == "marked?"]
    assert {marked_text(examples, record) for record in marked} == {None}


def test_questions_to_predict_are_all_kept(build):
    long = "ka to mi ren sol du ve lan qui bor?"
    dev = [question("elsewhere?", "nowhere", 3), question("none?"), question(" ", "sol")]
    dev += [question(long, "sol"), {"id": "unknown?", "question": "unknown?"}]
    sets = build(dev=dev, train=[question("b?", is_impossible=True)])
    examples = sets["dev"]
    answers = {line["id"]: line["answers"] for line in examples.sidecar()}
    expected = {"elsewhere?": ["nowhere"], "none?": [], " ": ["sol"], long: ["sol"], "unknown?": None}
    pieces = [len(examples.load_tokenizer().encode(one["question"])) for one in dev]
    assert answers == expected and examples.statistics["questions cut"] == sum(np.array(pieces) > 8)
    rows = zip(examples.sidecar(), examples.arrays()["input_ids"].tolist())
    ids = next(ids for line, ids in rows if line["id"] == long)
    assert ids.index(SEP_ID, ids.index(SEP_ID) + 1) == ids.index(SEP_ID) + 9
    assert set(examples.arrays()) == {"input_ids", "segment_ids", "index", "answer_mask"}
    assert sets["train"].settings["unanswerable"] and examples.settings["unanswerable"]
    test = build(version="v2.0", test=dev[-1:])["test"]
    assert examples.settings["answered"] and not test.settings["answered"] and test.settings["unanswerable"]


def test_passages_that_were_changed_are_refused(build):
    """Answers are read from them."""
    for _ in range(2):  # the second build takes the place of the first
        folder = build(dev=[question("q", "ren")])["dev"].folder
    assert Passage.read_all(folder)[0].text == PASSAGE
    path = folder / "passages.jsonl"
    path.write_text(path.read_text().replace("ren", "sol", 1))
    with pytest.raises(UserError, match="passages.jsonl has the sha256"):
        Passage.read_all(folder)


def test_nothing_is_learned_from_a_passage_without_text(build):
    arrays = build(context=" \n", dev=[question("Ka?", "sol")])["dev"].arrays()
    assert arrays["input_ids"].shape[0] == 1 and arrays["input_ids"][0, 0] == SEP_ID
    assert arrays["answer_mask"].sum() == 1  # CLS
    with pytest.raises(UserError, match=r"train.json gives no examples: empty passage \(1\)"):
        build(context=" \n", train=[question("Ka?", "sol")])


def test_answers_that_differ_in_white_space_are_learned_and_counted(build):
    context = "Katomi ren\r\nsol du\tvelan  quibor mi."
    answers = {"ren sol": 7, "du velan": 16, "velan quibor": 0, "quibor mi": 26}
    questions = [question(text, text, begin) for text, begin in answers.items()]
    examples = build(context=context, train=questions)["train"]
    assert [" ".join(marked_text(examples, number).split()) for number in range(4)] == list(answers)
    counts = examples.statistics
    assert counts["questions whose answer has other white space than the passage"] == 3
    assert counts["questions with a wrong answer_start, repaired"] == 1 and not examples.skipped


@pytest.mark.parametrize("column", ["answer", "answers", "reply"])
def test_a_column_of_one_answer_is_located_in_the_passage(tmp_path, tokenizer_file, column):
    answers = {"Katomi ren sol du ren.": "ren", "Katomi ren sol du 5 ren.": "5"}
    answers |= {"Katomi ren\tsol du.": "ren sol", "Katomi [ren] sol.": "[ren]"}
    answers |= {"Katomi ren sol.": "velan", "Katomi sol.": ""}
    rows = [(context, f"{n}?", answer) for n, (context, answer) in enumerate(answers.items())]
    train = table(tmp_path / "t.csv", ("context", "question", column), *rows)
    options = {"train": train, "seq_len": 40, "max_question_len": 8}
    options = SquadOptions(str(tokenizer_file), str(tmp_path / "out"), **options)
    if column == "reply":
        with pytest.raises(UserError, match="the columns context, question, reply, .*--answers_column"):
            build_squad(options)
        options = dataclasses.replace(options, answers_column="reply")
    examples = build_squad(options)["train"]
    assert [marked_text(examples, number) for number in range(4)] == ["ren", "5", "ren\tsol", "[ren]"]
    assert examples.statistics["questions whose answer was found without an answer_start"] == 4
    assert {reason: one["count"] for reason, one in examples.skipped.items()} == {
        "answer not in the passage": 1,
        "no answer to a question that is not marked is_impossible": 1,
    }


@pytest.mark.parametrize(
    "name",
    [
        "cs224n_dev-v2.0",
        pytest.param("dev-v1.1.from-explorer", marks=pytest.mark.integration),
        pytest.param("dev-v2.0.from-explorer", marks=pytest.mark.integration),
    ],
)
def test_real_answers_are_aligned(shared, tmp_path, name):
    """Of every 15th passage: each answerable question has its answer in a window, letter by letter."""
    content = json.loads(gzip.decompress(shared(f"data/squad/{name}.json.gz").read_bytes()))
    for article in content["data"]:
        article["paragraphs"] = article["paragraphs"][::15]
    (tmp_path / "part.json").write_text(json.dumps(content))
    options = str(shared("data/xlnet_cased/spiece.model")), str(tmp_path)
    examples = build_squad(SquadOptions(*options, train=f"{tmp_path}/part.json"))["train"]
    assert examples.skipped == {}
    arrays, passages = examples.arrays(), Passage.read_all(examples.folder)
    found, exact = set(), 0
    for record, line in enumerate(examples.sidecar()):
        if not arrays["is_impossible"][record]:
            found.add(line["id"])
            passage = passages[line["passage"]]
            first, last = (line["first"] + arrays[n][record] for n in ("answer_first", "answer_last"))
            text = passage.text[passage.begins[first] : passage.ends[last]]
            assert line["answers"][0].strip() in text
            exact += text == line["answers"][0].strip()
    answerable = examples.statistics["questions"] - examples.statistics["questions without an answer"]
    assert len(found) == answerable > 100 and exact >= 0.98 * answerable
