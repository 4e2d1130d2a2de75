# RXE devices and the links below them, in two shapes. Sourced by bash, as root; needs iproute2's ip
# and rdma (busybox's ip is no substitute).

# An Ethernet MTU of 4200 leaves room for an RDMA MTU of 4096 and its headers.
LINK_MTU=4200

# loopback_up DEVICE LINK ADDRESS/PREFIX: an RXE device that talks to itself only. Its packets take a
# short cut inside RXE and never reach the link.
loopback_up() {
    local device=$1 link=$2 address=$3
    ip link add "$link" type dummy
    ip address add "$address" dev "$link"
    ip link set "$link" up mtu "$LINK_MTU"
    rdma link add "$device" type rxe netdev "$link"
}

# loopback_down DEVICE LINK: takes both away, as far as they are there.
loopback_down() {
    rdma link delete "$1" 2>/dev/null || true
    ip link delete "$2" 2>/dev/null || true
}

# pair_up RAIL: two "hosts", a and b, joined on this rail by a veth link that their packets really
# cross: devices aRAIL and bRAIL on links vaRAIL (10.8.RAIL.1) and vbRAIL (10.8.RAIL.2).
#
# RXE works in one network namespace only, so both ends live in the same one, where the kernel would
# deliver packets between two of its own addresses through `lo`. Rules before the local table send
# them over the wire; pair_routing must follow once all rails are there.
pair_up() {
    local rail=$1
    local va=va$rail vb=vb$rail a=10.8.$rail.1 b=10.8.$rail.2
    ip link add "$va" type veth peer name "$vb"
    ip address add "$a/24" dev "$va"
    ip address add "$b/24" dev "$vb"
    local link
    for link in "$va" "$vb" all; do
        echo 1 >"/proc/sys/net/ipv4/conf/$link/accept_local"
        echo 0 >"/proc/sys/net/ipv4/conf/$link/rp_filter"
        echo 1 >"/proc/sys/net/ipv4/conf/$link/arp_ignore"
    done
    ip link set "$va" up mtu "$LINK_MTU"
    ip link set "$vb" up mtu "$LINK_MTU"
    pair_routes "$rail"
    ip rule add pref $((10 + rail)) iif lo to "$b" lookup $((200 + rail))
    ip rule add pref $((20 + rail)) iif lo to "$a" lookup $((210 + rail))
    rdma link add "a$rail" type rxe netdev "$va"
    rdma link add "b$rail" type rxe netdev "$vb"
}

# pair_routes RAIL: the routes over the wire. The kernel drops them when a link goes down, so a test
# that took a link down calls this again after bringing it up.
pair_routes() {
    local rail=$1
    ip route replace "10.8.$rail.2" dev "va$rail" table $((200 + rail))
    ip route replace "10.8.$rail.1" dev "vb$rail" table $((210 + rail))
}

# pair_routing: moves the table of local addresses behind the rules of pair_up.
pair_routing() {
    ip rule add pref 100 lookup local
    ip rule del pref 0
}
