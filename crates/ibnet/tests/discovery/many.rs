//! More devices than anybody has.

use std::fmt::Write;

use crate::machine::Machine;

#[test]
fn there_is_no_largest_number_of_devices() {
    // Pitfalls 22 and 101 (nccl#1091, nccl#2282): not 16, not 32, not 54.
    for (cards, has_pci) in [(27_u32, true), (150, false)] {
        let mut description = String::new();
        for card in 0..cards {
            let place = if has_pci {
                writeln!(description, "pci {card:04x}:01:00.0").unwrap();
                format!("{card:04x}:01:00.0")
            } else {
                "nowhere".to_owned()
            };
            writeln!(
                description,
                "rdma mlx5_{card} on {place} guid=1{card:x} : ib 4xHDR; ib 4xHDR"
            )
            .unwrap();
        }
        let machine = Machine::new(&description);
        let fabric = machine.fabric();
        let transport = machine.open(&fabric, &[]).unwrap();
        let devices = transport.devices();
        assert_eq!(devices.len() as u32, 2 * cards);
        for (index, info) in devices.iter().enumerate() {
            let ordinal = index as u32 % 2;
            assert_eq!(info.members, [index]);
            assert_eq!(info.name, format!("mlx5_{}", index / 2));
            assert_eq!(info.port_ordinal, ordinal);
            assert_eq!(u32::from(info.port), ordinal + 1);
        }
    }
}
