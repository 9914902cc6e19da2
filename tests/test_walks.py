"""How many functions and files a piece of work passes through: a hop more needs a reason.

A walk that grows past its budget fails here with the list of what it enters. The three walks are drawn in
CONTRIBUTING.md.
"""

from tests.conftest import invent_texts
from tests.helpers import walks
from tests.helpers.training import toy
from tfrecord_builders.pretraining.build import build_sets
from tfrecord_builders.pretraining.options import PretrainingOptions
from xlnet_tf.tasks.pretraining import task as pretraining


def check(walk, functions: int, files: int) -> None:
    """Fails if a walk enters more functions or files than its budget."""
    found = walks.entered(walk)
    counted = walks.counts(found)
    assert counted <= (functions, files) and counted[1] <= files, f"{counted}\n{walks.listed(found)}"


def test_from_a_text_to_a_record(tmp_path, small_tokenizer):
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model_proto)
    (tmp_path / "corpus.txt").write_text("\n".join(invent_texts(200)))

    def build(name):
        build_sets(
            PretrainingOptions(
                input=[str(tmp_path / "corpus.txt")],
                tokenizer=str(tmp_path / "spiece.model"),
                output_dir=str(tmp_path / name),
                seq_len=32,
                num_workers=1,
            )
        )

    check(build, functions=245, files=48)


def test_from_a_record_to_an_update(tmp_path):
    toy.make_records(tmp_path / "records")

    def train(name):
        params = pretraining.pretraining_experiment()
        params.override(toy.settings(tmp_path))
        params.override({"trainer": {"train_steps": 2, "steps_per_loop": 2}})
        pretraining.pretrain(params, str(tmp_path / name))

    check(train, functions=384, files=58)
