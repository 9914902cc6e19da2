#!/usr/bin/env bash
# Trains on a TPU VM, in the background: run_scripts.launch copies this file there and calls it over ssh.
#
#   tpu_vm.sh start SECONDS PACKAGE TENSORFLOW TPU MODULE FLAG...
#   tpu_vm.sh look OFFSET      # prints a line `xlnet-job STATE STATUS SIZE`, and the log from the offset on
#   tpu_vm.sh stop             # asks the training to save a checkpoint and to end
#
# TPU is `local`, or the name of a slice of several hosts, whose VMs have TensorFlow's runtime in their image.
set -euo pipefail

folder="$HOME/xlnet-job"
environment="$folder/environment"
log="$folder/log"
status="$folder/status"
lock="$folder/lock"
max_log=1000000

install() {
    package=$1 tensorflow=$2 tpu=$3
    if [ "$(cat "$folder/installed" 2>/dev/null)" = "$package" ]; then
        return
    fi
    echo "installing $package"
    if ! python3 -c "import ensurepip" 2>/dev/null; then
        # A new VM may still be installing its own updates, which hold the lock of apt.
        sudo apt-get -o DPkg::Lock::Timeout=300 update --quiet
        sudo apt-get -o DPkg::Lock::Timeout=300 install --quiet --yes python3-venv
    fi
    python3 -m venv "$environment"
    local pip=("$environment/bin/python" -m pip --quiet --disable-pip-version-check)
    local pins=()
    if [ -e requirements.lock ]; then # the versions that were tested, if they came along
        sed -E '/^ +(--hash|#)/d; s/ *\\$//' requirements.lock >"$folder/constraints"
        pins=(--constraint "$folder/constraints")
    fi
    "${pip[@]}" install --use-pep517 "${pins[@]}" "$package"
    if [ "$tpu" = local ]; then
        # tensorflow-tpu takes the place of tensorflow, which other packages require by name: order matters.
        "${pip[@]}" uninstall --yes tensorflow
        "${pip[@]}" install --no-deps --force-reinstall "tensorflow-tpu==$tensorflow"
        "${pip[@]}" install "libtpu~=0.0.14" # what tensorflow-tpu 2.20.0 asks for
    fi
    echo "$package" >"$folder/installed"
}

check_versions() {
    "$environment/bin/python" - "$1" "$2" <<'END'
import importlib.metadata
import sys

found = {}
for name in ("tensorflow", "tensorflow-tpu", "libtpu"):
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print("installed:", ", ".join(" ".join(pair) for pair in found.items()) or "no TensorFlow")
expected, tpu = sys.argv[1:]
name = "tensorflow-tpu" if tpu == "local" else "tensorflow"
if found.get(name) != expected or (tpu == "local" and "libtpu" not in found):
    also = " and libtpu" if tpu == "local" else ""
    sys.exit(f"ERROR: this VM has {found}, and the training needs {name} {expected}{also}: check package and runtime")
END
}

work() {
    seconds=$1 package=$2 tensorflow=$3 tpu=$4
    shift 4
    code=1
    trap 'echo "$code" >"$status.new" && mv "$status.new" "$status"' EXIT
    install "$package" "$tensorflow" "$tpu"
    check_versions "$tensorflow" "$tpu"
    if [ "$tpu" = local ]; then
        library=$("$environment/bin/python" -c "import libtpu; print(libtpu.get_library_path())")
        export NEXT_PLUGGABLE_DEVICE_USE_C_API=true PJRT_DEVICE=TPU TF_PLUGGABLE_DEVICE_LIBRARY_PATH=$library
    else
        export TPU_NAME=$tpu TPU_LOAD_LIBRARY=0
    fi
    export GCS_READAHEAD_BUFFER_SIZE_BYTES=262144 PYTHONUNBUFFERED=1
    # Without its launcher a run still ends when the budget does, with a checkpoint.
    timeout --preserve-status --signal=TERM --kill-after=300 "$seconds" \
        "$environment/bin/python" -m "$@" &
    echo $! >"$folder/pid"
    code=0
    wait $! || code=$?
}

command=$1
shift
mkdir -p "$folder"
case $command in
start)
    # What is started inherits the lock, and so does the training: it is free when nothing trains any more.
    exec 9>"$lock"
    flock --timeout 2 9 || exit 0 # it runs already
    rm -f "$status"
    touch "$folder/started"
    setsid nohup bash "$0" work "$@" >>"$log" 2>&1 </dev/null &
    ;;
work)
    work "$@"
    ;;
look)
    offset=$1 state=running code=-1
    if [ ! -e "$folder/started" ]; then
        state=new
    elif flock --nonblock "$lock" true; then
        # Nobody trains: it has ended, or the VM was restarted under it, which is like a lost host.
        state=ended code=$(cat "$status" 2>/dev/null || echo 75)
    fi
    size=$(stat --format=%s "$log" 2>/dev/null || echo 0)
    end=$((size - offset > max_log ? offset + max_log : size))
    echo "xlnet-job $state $code $end"
    if [ "$end" -gt "$offset" ]; then
        tail --bytes=+"$((offset + 1))" "$log" | head --bytes=$((end - offset)) || true
    fi
    ;;
stop)
    kill -TERM "$(cat "$folder/pid")" 2>/dev/null || true
    ;;
*)
    echo "ERROR: $command: expected start, look or stop" >&2
    exit 1
    ;;
esac
