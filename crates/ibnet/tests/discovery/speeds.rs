//! Every generation of links, every width, and what is not known.

use crate::machine::Machine;

fn speed_of(port: &str, variables: &[(&str, &str)]) -> u32 {
    let machine = Machine::new(&format!(
        "net bond0 speed=50000 bond
         net eth0 speed=25000
         net none
         rdma a0 on virtual : {port}"
    ));
    let fabric = machine.fabric();
    let transport = machine.open(&fabric, variables).unwrap();
    transport.devices()[0].speed_mbps
}

#[test]
fn from_sdr_to_xdr() {
    for (speed, lane) in [
        ("SDR", 2_500),
        ("DDR", 5_000),
        ("QDR", 10_000),
        ("FDR10", 10_000),
        ("FDR", 14_000),
        ("EDR", 25_000),
        ("HDR", 50_000),
        ("NDR", 100_000),
        ("XDR", 200_000),
    ] {
        for width in [1, 2, 4, 8, 12] {
            let port = format!("ib {width}x{speed}");
            assert_eq!(speed_of(&port, &[]), width * lane, "{port}");
        }
    }
}

#[test]
fn what_is_not_known_is_told_as_unknown() {
    // Pitfall 11: neither the fastest lane nor two of them.
    for port in [
        "ib raw:2:0",
        "ib raw:0:32",
        "ib raw:3:32",
        "ib raw:2:3",
        "ib raw:255:255",
    ] {
        assert_eq!(speed_of(port, &[]), 0, "{port}");
    }
    let machine = Machine::new("rdma a0 on virtual : ib raw:0:0");
    let fabric = machine.fabric();
    let info = machine.open(&fabric, &[]).unwrap().devices().remove(0);
    assert_eq!((info.speed_mbps, info.counted_speed_mbps()), (0, 2_500));
}

#[test]
fn the_driver_is_asked_unless_it_must_not_be() {
    let port = "eth 4xEDR effective=800000 net=bond0";
    assert_eq!(speed_of(port, &[]), 800_000);
    assert_eq!(speed_of(port, &[("NCCL_IB_QUERY_PORT_SPEED", "0")]), 50_000);
}

#[test]
fn a_bond_is_as_fast_as_its_interface_says() {
    for (port, speed) in [
        ("eth 1xEDR net=bond0", 50_000),
        ("eth 1xEDR net=eth0,bond0", 50_000),
        ("eth 4xEDR net=eth0", 100_000),
        ("eth raw:0:0 net=eth0", 25_000),
        ("eth raw:0:0 net=none", 0),
        // InfiniBand has no such bonds: IPoIB's say nothing of the port.
        ("ib 4xEDR net=bond0", 100_000),
    ] {
        assert_eq!(speed_of(port, &[]), speed, "{port}");
    }
}
