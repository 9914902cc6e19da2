"""The guard of a TPU VM, run on this machine: stand-ins play its metadata, its clock and the cloud."""

import os
import pathlib
import subprocess

import pytest

from run_scripts.launch.cloud_tpu import GUARD

QUEUED = "projects/p/locations/us-west4-a/queuedResources/base"
NODE = "projects/p/locations/us-west4-a/nodes/base"
# Time stands still but for `sleep`; requests are noted, and the first of them fail.
CURL = r"""#!/bin/bash
case "$*" in
*attributes/xlnet-guard-seconds) echo 600 ;;
*attributes/xlnet-guard-resource) cat resource ;;
*service-accounts/default/token) echo '{"access_token":"ya29.abc-d_e","expires_in":3599}' ;;
*"--request DELETE"*)
    echo "$(cat clock) $*" >>requests
    [ "$(wc -l <requests)" -gt "$(cat failing)" ] || exit 22
    touch gone
    ;;
esac
"""
DATE = "#!/bin/bash\ncat clock\n"
SLEEP = "#!/bin/bash\n[ ! -e gone ] || exit 1\necho $(($(cat clock) + $1)) >clock\n"


@pytest.fixture
def vm(tmp_path):
    """A function that starts the VM and waits until it is deleted; returns the requests to delete it."""
    (tmp_path / "bin").mkdir()
    for name, text in {"curl": CURL, "date": DATE, "sleep": SLEEP}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "clock").write_text("1000\n")
    path = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "XLNET_GUARD_FILE": str(tmp_path / "end")}

    def boot(resource, failing=0):
        (tmp_path / "resource").write_text(f"{resource}\n")
        (tmp_path / "failing").write_text(f"{failing}\n")
        subprocess.run(["bash", str(GUARD)], cwd=tmp_path, env=os.environ | path, timeout=60)
        return (tmp_path / "requests").read_text().splitlines()

    boot.folder = tmp_path
    return boot


@pytest.mark.parametrize(("resource", "query"), [(QUEUED, "?force=true"), (NODE, "")])
def test_a_tpu_deletes_itself_once_its_time_is_up(vm, resource, query):
    (request,) = vm(resource)
    assert request.startswith("1600 ")
    assert request.endswith(
        f"--header Authorization: Bearer ya29.abc-d_e https://tpu.googleapis.com/v2/{resource}{query}"
    )


def test_a_restart_of_the_vm_does_not_move_the_end(vm):
    pathlib.Path(vm.folder, "end").write_text("1200\n")
    (request,) = vm(QUEUED)
    assert request.startswith("1200 ")


def test_deletion_is_repeated_until_it_succeeds(vm):
    requests = vm(QUEUED, failing=3)
    assert [line.split()[0] for line in requests] == ["1600", "1660", "1720", "1780"]
