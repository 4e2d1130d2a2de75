#!/bin/bash
# Runs one command on RXE devices of this host itself, and takes the devices away in every case.
# Usage: host.sh TOPOLOGY.SH JOB. As root. Touches neither addresses nor routes of other links.
set -euo pipefail
topology=$1 job=$2

# Names that say whose they are; 198.18.0.0/15 is set aside for tests of network devices (RFC 2544).
devices=(ibnet_rxe0 ibnet_rxe1)
links=(ibnetdummy0 ibnetdummy1)
addresses=(198.18.90.1/24 198.18.91.1/24)

. "$topology"
for link in "${links[@]}"; do
    if ip link show "$link" >/dev/null 2>&1; then
        echo "there is a link $link already: another run is under way, or was killed;" \
            "\`ip link delete $link\` removes it" >&2
        exit 1
    fi
done
if ! modprobe rdma_rxe; then
    echo "this host's kernel has no loadable rdma_rxe; leave out --accel host to use the" \
        "virtual machine" >&2
    exit 1
fi

child=
clean_up() {
    trap - EXIT HUP INT TERM
    if [ -n "$child" ]; then
        kill -- "-$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    fi
    local index
    for index in "${!links[@]}"; do
        loopback_down "${devices[index]}" "${links[index]}"
    done
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

for index in "${!links[@]}"; do
    loopback_up "${devices[index]}" "${links[index]}" "${addresses[index]}"
done
ulimit -l unlimited || true

# In the background, because bash handles signals only between commands of the foreground; with job
# control, which gives the job a process group of its own, so that all of it can be stopped.
set -m
bash "$job" &
child=$!
status=0
wait "$child" || status=$?
child=
exit "$status"
