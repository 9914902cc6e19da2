"""Shows what this machine has, and what can run on it: versions, devices, memory, disk, and what is missing.

    python -m run_scripts.doctor

Next to what cannot run here stands the command that installs what is missing. The exit status is 1 if
something is broken that the project needs.
"""

import os
import platform
import sys
from collections.abc import Sequence

from run_scripts.doctor import checks
from xlnet_tf import __version__, errors

_SHOWN = (
    "tensorflow",
    "tf_keras",
    "tensorflow-text",
    "tf-models-official",
    "tensorflow-serving-api",
    "numpy",
)


def main(_: Sequence[str]) -> None:
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
    sys.exit(int(broken))


if __name__ == "__main__":
    errors.run(main)
