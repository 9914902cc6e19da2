import dataclasses

from xlnet_tf.tpu import report
from xlnet_tf.tpu.compilation import Compiled, NotCompiled, Planned
from xlnet_tf.tpu.report import CompiledBatch
from xlnet_tf.tpu.topologies import TOPOLOGIES

V3, V5E = TOPOLOGIES["v3"], TOPOLOGIES["v5e"]
MADE = Compiled(
    arguments=6_000_000_000,
    outputs=5_500_000_000,
    aliased=5_000_000_000,
    temporaries=1_250_000_000,
    code=60_000_000,
    flops=5.6e12,
    bytes_accessed=93.7e9,
    estimated_seconds=0.262,
    compile_seconds=38.0,
)
REFUSED = NotCompiled("RESOURCE_EXHAUSTED: Ran out of memory\nsecond line\n" + "more\n" * 50)


def test_memory_is_what_is_not_shared():
    assert MADE.hbm == 6_000_000_000 + 500_000_000 + 1_250_000_000 + 60_000_000


def test_the_table_has_every_figure():
    lines = report.table([CompiledBatch(V3, 4, MADE, largest=True)], loops=0).splitlines()
    figures = lines[1].split("  ")
    cells = [cell.strip() for cell in figures if cell.strip()]
    assert cells == [
        "v3", "4 (largest)", "7.81 GB", "47%", "6.00 GB", "1.25 GB", "5.50 GB", "5.00 GB", "5.600",
        "93.70 GB", "0.2620 s",
    ]  # fmt: skip
    assert "estimate, of the computation alone, no measurement" in lines[-1]


def test_of_a_plan_there_is_the_memory_alone():
    row = CompiledBatch(V3, 4, Planned(8_400_000_000))
    cells = report.table([row], loops=0).splitlines()[1].split()
    assert cells == ["v3", "4", "8.40", "GB", "51%", *["-"] * 7]
    assert row.to_dict()["hbm_filled"] == 8_400_000_000 / V3.hbm_bytes
    assert "compiles" not in row.to_dict()


def test_a_time_at_peak_rates_is_called_so_and_a_note_is_shown():
    at_peak = dataclasses.replace(MADE, estimated_seconds=0.1, is_at_peak=True)
    text = report.table([CompiledBatch(V3, 4, MADE), CompiledBatch(V5E, 4, at_peak)], loops=0)
    assert text.splitlines()[2].endswith(" ~0.1000 s") and "at the chip's peak rates" in text
    assert "peak" not in report.table([CompiledBatch(V3, 4, MADE)], loops=0)
    text = report.table([CompiledBatch(TOPOLOGIES["tpu7x"], 4, at_peak)] * 2, loops=0)
    assert text.count("TensorFlow is not supported") == 1


def test_the_compilers_own_words_are_shown_but_not_all_of_them():
    text = report.table([CompiledBatch(V3, 4, MADE), CompiledBatch(V5E, 64, REFUSED)], loops=0)
    assert "v5e, batch 64 is too large:\n    RESOURCE_EXHAUSTED: Ran out of memory" in text
    assert text.count("more") < 12
    other = report.table([CompiledBatch(V5E, 64, NotCompiled("INVALID_ARGUMENT: what is this"))], loops=0)
    assert "does not compile" in other and "what is this" in other


def test_a_search_without_a_result_names_what_ended_it():
    row = CompiledBatch(V3, 16, NotCompiled("the compiler ended with code -9"), ends_search=True)
    text = report.table([CompiledBatch(V3, 8, MADE), row], loops=0)
    assert "largest)" not in text
    ending = "does not compile, which ends the search for the largest batch without an answer:"
    assert f"v3, batch 16 {ending}\n    the compiler ended with code -9\n" in text
    assert row.to_dict()["ends_search"] and "ends_search" not in CompiledBatch(V3, 8, MADE).to_dict()


def test_loops_are_reported():
    assert "1 loop(s) of the program multiply matrices" in report.table([CompiledBatch(V3, 4, MADE)], loops=1)


def test_json_has_sizes_in_bytes():
    made, refused = (
        CompiledBatch(V3, 4, MADE, largest=True).to_dict(),
        CompiledBatch(V3, 8, REFUSED).to_dict(),
    )
    assert made["compiles"] and made["largest"] and made["hbm"] == MADE.hbm
    assert made["hbm_filled"] == MADE.hbm / V3.hbm_bytes
    assert (refused["compiles"], refused["batch_per_core"]) == (False, 8)
    assert refused["error"] == REFUSED.error and "largest" not in refused
