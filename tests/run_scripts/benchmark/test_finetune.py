"""The benchmark of fine-tuning runs end to end at tiny sizes; nothing is asserted about time."""

import pytest

from run_scripts.benchmark import timing
from run_scripts.benchmark_finetune import measure as benchmark
from tests.helpers.records import labelled
from xlnet_tf.config import XLNetConfig
from xlnet_tf.errors import UserError

TINY = XLNetConfig(n_token=7, n_layer=1, d_model=16, n_head=2, d_head=8, d_inner=10)


@pytest.fixture(scope="module")
def data(tmp_path_factory, tokenizer_file):
    folder = tmp_path_factory.mktemp("finetune")
    rows = [("a film " * (1 + row % 3), row % 2) for row in range(13)]
    train = labelled.table(folder / "train.csv", ("text", "label"), *rows)
    labelled.builder(folder, tokenizer_file)(train=train)
    return str(folder / "records/train")


@pytest.mark.integration
def test_measure(data):
    plan = benchmark.Plan(data=data, examples=11, batch_size=4, modes=("length", "fixed"), peer_steps=1)
    report = benchmark.measure(TINY, plan)
    assert set(report["seconds_per_example"]) == {"length", "fixed", "predict length", "model_garden"}
    positions = report["positions"]
    assert report["text"] < positions["length"] < positions["fixed"]
    shown = benchmark.table(report | {"machine": timing.machine()})
    assert "11 examples" in shown and "fixed" in shown and "packed" not in shown


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        (("length", "sorted"), "modes has sorted; expected some of length, packed"),
        (("packed",), "lacks length"),
    ],
)
def test_modes_that_cannot_be_compared(modes, message):
    with pytest.raises(UserError, match=message):
        benchmark.Plan(data="records", modes=modes)
