"""Checks the pinned packages for known vulnerabilities and lists their licences; `make audit` runs it.

    python -m tests.audit PIP_AUDIT

PIP_AUDIT is the program pip-audit, which asks the package index's database and OSV's.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
from importlib import metadata

from packaging.requirements import Requirement

LOCK = pathlib.Path(__file__).resolve().parents[1] / "requirements.lock"
DATABASES = ("pypi", "osv")
# Words of licences that ask for more than a notice: worth a look before something is shipped.
COPYLEFT = ("gpl", "general public", "mpl", "mozilla", "not stated", "not installed")


def pins() -> list[tuple[Requirement, int]]:
    """Returns the requirements of the lock, each with the number of its checksums."""
    text = re.sub(r"^ *#.*\n", "", LOCK.read_text(), flags=re.MULTILINE)
    entries = re.split(r"\n(?=[a-z0-9])", text)
    return [(Requirement(entry.partition("\\")[0]), entry.count("--hash=sha256:")) for entry in entries]


def here() -> list[str]:
    """Returns the names of the packages that the lock pins for this machine."""
    return [pin.name for pin, _ in pins() if not pin.marker or pin.marker.evaluate()]


def audit(pip_audit: str, database: str) -> list[dict]:
    """Asks a database about the packages of the lock: a dictionary each; none if it does not answer."""
    command = [pip_audit, "--vulnerability-service", database, "--requirement", str(LOCK), "--require-hashes"]
    command += ["--disable-pip", "--progress-spinner=off", "--format=json", "--timeout=30"]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        return []
    return packages if any("vulns" in package for package in packages) else []


def vulnerabilities(pip_audit: str) -> tuple[str, bool]:
    """Returns what a database knows, as text, and whether it is of no concern."""
    for database in DATABASES:
        if packages := audit(pip_audit, database):
            break
    else:
        return "vulnerabilities: NOT CHECKED, no database could be reached", True
    found = [
        f"  {package['name']} {package['version']}: {flaw['id']}, fixed in {', '.join(flaw['fix_versions'])}"
        for package in packages
        for flaw in package.get("vulns", [])
    ]
    skipped = [package["name"] for package in packages if "vulns" not in package]
    lines = [f"vulnerabilities: {len(found)} in {len(packages) - len(skipped)} packages ({database})", *found]
    if skipped:
        lines.append(f"  not checked: {', '.join(skipped)}")
    return "\n".join(lines), not found


def licence(package: str) -> str:
    """Returns the licence that an installed package states, in a few words."""
    try:
        stated = metadata.metadata(package)
    except metadata.PackageNotFoundError:
        return "not installed here"
    if expression := stated.get("License-Expression"):
        return expression
    classifiers = [line for line in stated.get_all("Classifier", []) if line.startswith("License ::")]
    if classifiers:
        return ", ".join(sorted(line.rpartition(":: ")[2] for line in classifiers))
    return (stated.get("License") or "").strip().partition("\n")[0][:60] or "not stated"


def licences() -> str:
    """Returns the packages of the lock by licence, as text; those that ask for more than a notice first."""
    packages = collections.defaultdict(list)
    for name in here():
        packages[licence(name)].append(name)
    first = [name for name in sorted(packages) if any(word in name.lower() for word in COPYLEFT)]
    others = sorted(packages.keys() - set(first), key=str.lower)
    lines = [f"  {name}: {', '.join(packages[name])}" for name in (*first, *others)]
    title = f"licences of {len(here())} packages; the first {len(first)} lines ask for more than a notice"
    return "\n".join([title, *lines])


def main(pip_audit: str) -> None:
    text, is_fine = vulnerabilities(pip_audit)
    print(f"{text}\n\n{licences()}")
    sys.exit(not is_fine)


if __name__ == "__main__":
    main(sys.argv[1])
