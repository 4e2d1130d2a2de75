//! The limit to the number of fabrics. In a process of its own, because it uses all of them up.

#![allow(clippy::unwrap_used)]

use ibnet_simverbs::{BuildError, DeviceSpec, Fabric};

/// One test, because each part needs all places to itself.
#[test]
fn places_are_limited_and_used_again_last_of_all() {
    let library = Fabric::builder().build().unwrap().library();
    let one_of_many = || {
        Fabric::builder()
            .device(DeviceSpec::roce("sim0"))
            .build()
            .unwrap()
    };
    let many: Vec<_> = (0..100).map(|_| one_of_many()).collect();
    assert!(library.devices().unwrap().is_empty());
    drop(many);

    let mut fabrics = Vec::new();
    let error = loop {
        match Fabric::builder().build() {
            Ok(fabric) => fabrics.push(fabric),
            Err(error) => break error,
        }
        assert!(fabrics.len() <= 128);
    };
    assert!(matches!(error, BuildError::TooManyFabrics));
    assert!(error.to_string().contains("128"));

    // The only free place is that of a fabric whose library is still around. That library finds
    // nothing, until the place is taken again.
    let library = fabrics.pop().unwrap().library();
    assert!(library.devices().unwrap().is_empty());
    let device = DeviceSpec::roce("sim0");
    let _fabric = Fabric::builder().device(device).build().unwrap();
    assert_eq!(library.devices().unwrap().len(), 1);
}
