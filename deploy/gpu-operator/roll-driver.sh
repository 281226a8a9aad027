#!/bin/sh
# Lets the GPU Operator upgrade the driver on the nodes that may take it, and holds the others back.
#
#   roll-driver.sh hold             hold back every GPU node; before the driver's version is changed
#   roll-driver.sh release DRIVER   ask the gate about each node, and release those that may take it
#
# Needs kubectl (get and patch nodes) and compatgate, with COMPATGATE_SERVER and COMPATGATE_TOKEN (scope plan).
# Exit status of release: 0 every node may take it, 1 some may not, 3 of some it cannot be said.
# Where kubectl fails or finds no GPU node, nothing is done, with another status than 0.
set -eu
skip=nvidia.com/gpu-driver-upgrade.skip
nodes() {
    found=$(kubectl get nodes -l nvidia.com/gpu.present=true -o name)
    [ -n "$found" ] || { echo "no node is labelled nvidia.com/gpu.present=true" >&2; exit 3; }
}

case "${1:-}" in
hold)
    nodes
    for node in $found; do kubectl label --overwrite "$node" "$skip=true"; done
    ;;
release)
    driver=${2:?which driver}
    worst=0
    nodes
    for node in $found; do
        seen=$(kubectl get "$node" -o json)
        status=0
        said=$(printf '%s\n' "$seen" | compatgate target what-if --node - \
            --set "driver=$driver" 2>&1) || status=$?
        echo "$node: $said" | head -n 2
        if [ "$status" -eq 0 ]; then
            kubectl label "$node" "$skip-"
        else
            kubectl label --overwrite "$node" "$skip=true"
            [ "$status" -le "$worst" ] || worst=$status
        fi
    done
    exit "$worst"
    ;;
*)
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
