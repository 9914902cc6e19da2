#!/usr/bin/env bash
# Deletes a TPU VM when its time is up: the startup script that run_scripts.launch gives it, for the case that the
# launch is killed and never started again. Metadata of the VM:
#
#   xlnet-guard-seconds   how long the TPU may exist after its first start
#   xlnet-guard-resource  what to delete: projects/PROJECT/locations/ZONE/queuedResources/NAME, or .../nodes/NAME
#
# The VM's service account needs the role TPU Admin. Facts (read 2026-11-24; never run on the real cloud):
# startup scripts, https://docs.cloud.google.com/compute/docs/instances/startup-scripts/linux; access tokens,
# https://docs.cloud.google.com/compute/docs/access/authenticate-workloads; the request,
# https://docs.cloud.google.com/tpu/docs/reference/rest/v2/projects.locations.queuedResources/delete.
set -euo pipefail

server=http://metadata.google.internal/computeMetadata/v1/instance
metadata() { curl --fail --silent --show-error --retry 5 --header "Metadata-Flavor: Google" "$server/$1"; }

seconds=$(metadata attributes/xlnet-guard-seconds)
resource=$(metadata attributes/xlnet-guard-resource)
end_file=${XLNET_GUARD_FILE:-/var/lib/xlnet-guard} # a restart of the VM does not move the end
[ -e "$end_file" ] || echo $(($(date +%s) + seconds)) >"$end_file"
end=$(cat "$end_file")

while left=$((end - $(date +%s))) && [ "$left" -gt 0 ]; do
    sleep $((left < 60 ? left : 60)) # in parts: sleep does not count the time of a suspended VM
done
case $resource in
*/queuedResources/*) query="?force=true" ;; # its nodes, too
*) query= ;;
esac
while true; do
    echo "the budget is spent, and no launch has deleted $resource: deleting it"
    token=$(metadata service-accounts/default/token | sed -E 's/.*"access_token" *: *"([^"]+)".*/\1/') &&
        curl --fail --silent --show-error --request DELETE --header "Authorization: Bearer $token" \
            "https://tpu.googleapis.com/v2/$resource$query" ||
        echo "it cannot be deleted: the VM's service account needs the role TPU Admin" >&2
    sleep 60
done
