#!/usr/bin/env bash
# The startup script of a Compute Engine VM that trains, and powers off when the training has ended.
#
#   gcloud compute instances create NAME --project=PROJECT --zone=ZONE --machine-type=MACHINE \
#       --image-family=FAMILY --image-project=IMAGES --scopes=cloud-platform --maintenance-policy=TERMINATE \
#       --provisioning-model=SPOT --instance-termination-action=STOP --max-run-duration=48h \
#       --metadata="xlnet-package=gs://BUCKET/xlnet_tf-0.1.0-py3-none-any.whl,xlnet-kind=gpu" \
#       --metadata-from-file=startup-script=deploy/compute-engine/startup.sh,xlnet-unit=deploy/systemd/xlnet-train.service,xlnet-command=command.txt
#
# command.txt has the command in one line: pretrain --config_file=base --train_data=gs://... --model_dir=gs://...
# xlnet-kind is cpu, gpu or tpu (one host). Machine types and images of TPUs: TPU resources in Compute Engine,
# https://docs.cloud.google.com/tpu/docs/tpus-in-compute-engine; Spot:
# https://docs.cloud.google.com/tpu/docs/spot-compute; the longest time that the VM runs:
# https://docs.cloud.google.com/compute/docs/instances/limit-vm-runtime (all read 2026-11-24). Never run on the
# real cloud.
#
# The script runs at every start of the VM, and the training resumes from its last checkpoint.
set -euo pipefail

attributes=http://metadata.google.internal/computeMetadata/v1/instance/attributes
metadata() { curl --fail --silent --show-error --header "Metadata-Flavor: Google" "$attributes/$1"; }

package=$(metadata xlnet-package)
kind=$(metadata xlnet-kind)
command=$(metadata xlnet-command)
pip=(/opt/xlnet/bin/python -m pip --quiet --disable-pip-version-check install)
library=

id xlnet >/dev/null 2>&1 || useradd --create-home xlnet
if [ ! -e /opt/xlnet/ready ]; then
    apt-get -o DPkg::Lock::Timeout=300 update --quiet
    apt-get -o DPkg::Lock::Timeout=300 install --quiet --yes python3-venv
    python3 -m venv /opt/xlnet
    wheel=/opt/xlnet/${package##*/}
    gcloud storage cp "$package" "$wheel"
    "${pip[@]}" --use-pep517 "$wheel"
    case $kind in
    cpu) ;;
    gpu) "${pip[@]}" "tensorflow[and-cuda]==2.20.0" ;;
    tpu)
        /opt/xlnet/bin/python -m pip --quiet uninstall --yes tensorflow
        "${pip[@]}" --no-deps --force-reinstall tensorflow-tpu==2.20.0
        "${pip[@]}" "libtpu~=0.0.14"
        ;;
    *)
        echo "ERROR: xlnet-kind is $kind: expected cpu, gpu or tpu" >&2
        exit 1
        ;;
    esac
    touch /opt/xlnet/ready
fi

{
    echo "COMMAND=$command"
    echo "GCS_READAHEAD_BUFFER_SIZE_BYTES=262144"
    if [ "$kind" = tpu ]; then
        library=$(/opt/xlnet/bin/python -c "import libtpu; print(libtpu.get_library_path())")
        printf '%s\n' NEXT_PLUGGABLE_DEVICE_USE_C_API=true PJRT_DEVICE=TPU "TF_PLUGGABLE_DEVICE_LIBRARY_PATH=$library"
    fi
} >/etc/xlnet-train.env

metadata xlnet-unit >/etc/systemd/system/xlnet-train.service
# A VM that has nothing to do should not cost money: it powers off after success and after an error.
mkdir -p /etc/systemd/system/xlnet-train.service.d
printf '[Unit]\nSuccessAction=poweroff\nFailureAction=poweroff\n' \
    >/etc/systemd/system/xlnet-train.service.d/poweroff.conf
systemctl daemon-reload
systemctl start xlnet-train.service
