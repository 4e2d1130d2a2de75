#!/bin/bash
# The first process of the test guest: makes the devices, runs the job, reports its exit status on
# the second serial port, and powers off. The first serial port is the console, where the kernel and
# the job print. Run by the kernel from the initramfs; the parameters that it passes on as
# environment variables are `ibnet_probe=1` (only show that the machine boots), `ibnet_shell=1`, and
# `ibnet_terminal=1` (the job's output is shown on a terminal).
set -Eeuo pipefail

export PATH=/opt/ibnet/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root

mount -t devtmpfs devtmpfs /dev
exec </dev/null >/dev/ttyS0 2>&1
stty -F /dev/ttyS1 raw

# Ends the machine once the console has printed everything: stty waits for that before it acts.
power_off() {
    stty -F /dev/ttyS0 sane || true
    # The kernel's farewell is not the job's output.
    echo 0 >/proc/sys/kernel/printk || true
    poweroff -f
    sleep 60
}

set_up_failed() {
    echo "setting up the guest failed: line $1 of /init: $2"
    power_off
}
trap 'set_up_failed "$LINENO" "$BASH_COMMAND"' ERR

mkdir -p /dev/pts /dev/shm
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /tmp
ln -s /proc/self/fd /dev/fd

if [ -n "${ibnet_probe:-}" ]; then
    echo "status 0" >/dev/ttyS1
    power_off
fi

hostname ibnet-guest
ulimit -l unlimited
ip link set lo up

# Each line is a module and its parameters.
while read -r module parameters; do
    insmod "/opt/ibnet/modules/$module" $parameters
done </opt/ibnet/modules/order

# The topology that docs/soft-roce.md describes.
. /opt/ibnet/topology.sh
loopback_up rxe0 dummy0 10.9.0.1/24
loopback_up rxe1 dummy1 10.9.1.1/24
pair_up 0
pair_up 1
pair_routing

# RXE's ports become active, and get their IPv4 GID (index 1), a moment after their links.
wait_for_ports() {
    local tries port
    for port in /sys/class/infiniband/*/ports/1; do
        for ((tries = 0; tries < 100; tries++)); do
            if grep -q ACTIVE "$port/state" && grep -q 'ffff:' "$port/gids/1"; then
                continue 2
            fi
            sleep 0.1
        done
        echo "not active, or without an IPv4 GID: $port"
        return 1
    done
}
wait_for_ports

. /opt/ibnet/environment
cd /root
trap - ERR
set +e

# The line after which the console belongs to the job.
echo "ibnet-guest: ready"
if [ -n "${ibnet_shell:-}" ]; then
    export PS1='guest:\w# '
    setsid -c bash --norc -i </dev/ttyS0 >/dev/ttyS0 2>&1
    status=$?
elif [ -n "${ibnet_terminal:-}" ]; then
    bash /opt/ibnet/job </dev/null >/dev/ttyS0 2>&1
    status=$?
else
    # Outside, the output goes to a file or a pipe; so it does here, that programs leave out what is
    # for terminals only.
    stty -F /dev/ttyS0 -onlcr
    exec 3> >(exec cat >/dev/ttyS0)
    copier=$!
    bash /opt/ibnet/job </dev/null >&3 2>&1 3>&-
    status=$?
    exec 3>&-
    # What is left in the pipe; a process that the job has left behind may keep it open for ever.
    for ((tries = 0; tries < 20; tries++)); do
        kill -0 "$copier" 2>/dev/null || break
        sleep 0.1
    done
fi

echo "status $status" >/dev/ttyS1
power_off
