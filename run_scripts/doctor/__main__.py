"""Shows what this machine has and what can run on it; or whether a model's pretrained weights are sound.

    python -m run_scripts.doctor
    python -m run_scripts.doctor xlnet/xlnet-base-cased
    python -m run_scripts.doctor runs/demo/model

Of the machine it shows versions, devices, memory, disk, and what is missing, with the command that installs
it. The exit status is 1 if something is broken that the project needs.

Of a model it checks whether the weights are whole, trained, and those of their release. It compares
variables, their values, the tokenizer, published numbers, and the loss of a paragraph with what is expected;
docs/get-weights.md explains each check. The exit status is 1 if a check fails.
"""

import dataclasses
import json
import os
import platform
import sys
from collections.abc import Sequence

from run_scripts.doctor import checks
from xlnet_tf import __version__, errors, files, hub
from xlnet_tf.errors import UserError
from xlnet_tf.flags import define_flags, from_flags, option

_SHOWN = (
    "tensorflow",
    "tf_keras",
    "tensorflow-text",
    "tf-models-official",
    "tensorflow-serving-api",
    "numpy",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """What is checked, this machine or a model."""

    model_dir: str | None = option(
        "Name or folder of pretrained weights to check, instead of this machine.", None
    )
    text_file: str | None = option(
        "Paragraph in the model's language. Default: a bundled one, in English or Chinese.", None
    )
    json: bool = option("Print the checks of a model as JSON.", False)


def check_machine() -> bool:
    """Prints the machine's report; returns whether nothing is broken that the project needs."""
    print(f"xlnet-tf {__version__} on Python {platform.python_version()}, {platform.platform()}\n")
    known, tensorflow = checks.packages(), checks.tensorflow()
    for package in known:
        if not package.extra and (package.name in _SHOWN or not package.fits):
            wrong = "" if package.fits else f"  WRONG: expected {package.expected or 'it'}"
            print(f"  {package.name:<24}{package.version or 'missing'}{wrong}")
    legacy = os.environ.get("TF_USE_LEGACY_KERAS")
    print(f"  {'tf.keras':<24}{tensorflow.keras or 'unknown'} (TF_USE_LEGACY_KERAS={legacy})")
    print(f"  {'devices':<24}{', '.join(tensorflow.devices) or 'unknown'}; {os.cpu_count()} processor cores")
    free, total = checks.memory()
    print(f"  {'memory':<24}{free:.1f} of {total:.1f} GB are free")
    free, total = checks.disk(os.curdir)
    print(f"  {'disk of this folder':<24}{free:,.0f} of {total:,.0f} GB are free\n")
    broken = False
    for ability in checks.abilities(known, tensorflow):
        broken |= bool(ability.missing) and ability.needed
        answer = "yes" if not ability.missing else "BROKEN" if ability.needed else "no"
        print(f"  {answer:<8}{ability.name}")
        if ability.missing:
            print(f"          {ability.missing}")
            if ability.command:
                print(f"          {ability.command}")
    return not broken


def check_model(options: DoctorOptions) -> bool:
    """Prints the results of the checks of pretrained weights; returns whether all passed."""
    hub.require(options.model_dir)
    from xlnet_tf.verification import verify_pretrained  # which --help need not wait for

    text = files.read_text(options.text_file) if options.text_file else None
    verification = verify_pretrained(options.model_dir, text)
    as_json = {"passed": verification.passed, **dataclasses.asdict(verification)}
    print(json.dumps(as_json, indent=1) if options.json else verification.table())
    return verification.passed


def main(_: Sequence[str]) -> None:
    options = from_flags(DoctorOptions)
    if not options.model_dir and (options.text_file or options.json):
        raise UserError("--text_file and --json are for the checks of a model: give its name or folder, too")
    sys.exit(0 if (check_model(options) if options.model_dir else check_machine()) else 1)


if __name__ == "__main__":
    define_flags(DoctorOptions)
    errors.run(main, positional="model_dir")
