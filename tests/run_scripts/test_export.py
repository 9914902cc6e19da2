"""Which flags the export takes, and with which others."""

import json

import pytest
from absl import flags

from run_scripts import export
from run_scripts.common import experiment, exports
from tests.helpers import command_flags
from xlnet_tf import task_registry
from xlnet_tf.errors import UserError


def parsed(*arguments):
    return command_flags.parsed(export.define_flags, "--output_dir=served", *arguments)


def check_flags(values):
    export.check_flags(*export.parse_flags(values))


@pytest.mark.parametrize(
    ("arguments", "is_run", "message"),
    [
        (["--pair", "--head=regression"], False, None),
        (["--head_name=x", "--head=tagging"], False, "--head_name is for .*, not for tagging"),
        (["--threshold=0", "--head=language_model"], False, "--threshold is for .*, not for language_model"),
        ([], True, None),
        (["--head=choice", "--pair"], True, "--head, --pair: for weights that are not a fine-tuned run"),
        (["--checkpoint=best"], False, "--checkpoint, --check_data and --calibrate are for fine-tuned runs"),
        (["--buckets=32,64", "--bucket_data=dev"], True, "--buckets and --bucket_data are both given: leave"),
    ],
)
def test_flags_go_together(tmp_path, arguments, is_run, message):
    if is_run:
        (tmp_path / "manifest.json").write_text(json.dumps({"kind": "examples"}))
    values = parsed(f"--model_dir={tmp_path}", *arguments)
    if message is None:
        check_flags(values)
    else:
        with pytest.raises(UserError, match=message):
            check_flags(values)


def test_a_checkpoint_inside_a_run_is_that_of_the_run(tmp_path):
    def split(name, **options):
        options = export.ExportOptions(model_dir=f"{tmp_path}/{name}", output_dir="served", **options)
        return experiment.split_checkpoint(options)

    (tmp_path / "ckpt-4.index").touch()
    found = split("ckpt-4")  # of a pretraining
    export.check_flags(found, {})
    assert (found.model_dir, found.checkpoint) == (f"{tmp_path}/ckpt-4", "")
    (tmp_path / "manifest.json").write_text(json.dumps({"kind": "examples"}))
    for ending in ("", "/", ".index"):
        found = split(f"ckpt-4{ending}")
        assert (found.model_dir, found.checkpoint) == (str(tmp_path), "ckpt-4")
        with pytest.raises(
            UserError, match="/ckpt-4.* and --checkpoint=last name two checkpoints: leave out"
        ):
            split(f"ckpt-4{ending}", checkpoint="last")


def test_every_head_can_be_asked_for_and_buckets_that_are_not_served_are_named(tmp_path, caplog):
    for head in ("language_model", *task_registry.names()):
        check_flags(parsed(f"--model_dir={tmp_path}", f"--head={head}"))
    with pytest.raises(flags.IllegalFlagValueError, match="--head=span: value should be one of"):
        parsed("--model_dir=.", "--head=span")
    exports.warn_of_left_out([4, 8, 32], (32, 64))
    assert "buckets of 4, 8 tokens are left out" in caplog.text
    assert "so the shortest bucket is 32" in caplog.text
    caplog.clear()
    exports.warn_of_left_out((), (32, 64))
    assert not caplog.text
