//! Arguments that make no sense, and times without end.

use std::time::Duration;

use simverbs::{BuildError, DeviceSpec, Fabric};

#[test]
fn names_that_are_no_file_names_are_refused() {
    let escape = "../../../../escape";
    for spec in [
        DeviceSpec::roce(".."),
        DeviceSpec::roce("a\0b"),
        DeviceSpec::roce("a/b"),
        DeviceSpec::roce("a").pci(escape),
        DeviceSpec::roce("a")
            .pci("0000:01:00.1")
            .virtual_function_of(escape),
    ] {
        let built = Fabric::builder().device(spec).sysfs().build();
        assert!(matches!(built, Err(BuildError::Device { .. })));
    }
}

#[test]
fn time_without_end_is_no_overflow() {
    let fabric = Fabric::builder()
        .device(DeviceSpec::roce("sim0"))
        .stepped(1)
        .build()
        .unwrap();
    let cut = fabric.faults().cut_link("sim0", 1, Duration::MAX);
    fabric.advance(Duration::MAX);
    for _ in 0..10 {
        fabric.step();
    }
    assert_eq!(cut.struck(), 0);
    assert!(fabric.now() > Duration::from_secs(1));
}
