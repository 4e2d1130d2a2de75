//! Registering the application's memory, on the simulator: what is shared, and what is refused how.
#![allow(clippy::unwrap_used)]

mod rig;

use ibnet::Error;
use ibnet::Wait;
use ibnet_simverbs::{Fabric, Limits};
use rig::{build, connection, roce};

const PAGE: usize = 4096;

/// A fabric whose devices hold `max_mr` registrations.
fn fabric(max_mr: u32) -> Fabric {
    let limits = Limits {
        max_mr,
        ..Limits::default()
    };
    build(
        roce("s", 1)
            .chain(roce("r", 1))
            .map(|spec| spec.limits(limits)),
    )
}

/// Memory of whole pages.
struct Memory(Vec<u8>);

impl Memory {
    fn new(pages: usize) -> Self {
        Self(vec![0; (pages + 1) * PAGE])
    }

    fn page(&mut self, number: usize) -> *mut u8 {
        let start = self.0.as_mut_ptr();
        start.wrapping_add(start.align_offset(PAGE) + number * PAGE)
    }
}

#[test]
fn a_part_shares_the_registration_of_the_whole_while_the_whole_is_used() {
    // Pitfalls 57 and 66.
    let fabric = fabric(1000);
    let (_sending, receiving) = connection(&fabric);
    let mut memory = Memory::new(8);
    let registrar = receiving.registrar();
    let before = fabric.live_objects().mrs;
    // SAFETY: here and below the memory lives longer than its registrations.
    let whole = unsafe { registrar.register(memory.page(0), 8 * PAGE) }.unwrap();
    // SAFETY: as above.
    let part = unsafe { registrar.register(memory.page(2), 100) }.unwrap();
    assert_eq!(fabric.live_objects().mrs, before + 1);
    whole.deregister().unwrap();
    assert_eq!(fabric.live_objects().mrs, before + 1);
    // The rest of the whole may be unmapped by now, and be other memory.
    // SAFETY: as above.
    let rest = unsafe { registrar.register(memory.page(5), 100) }.unwrap();
    assert_eq!(fabric.live_objects().mrs, before + 2);
    part.deregister().unwrap();
    rest.deregister().unwrap();
    assert_eq!(fabric.live_objects().mrs, before);
}

#[test]
fn want_of_memory_is_explained() {
    let fabric = fabric(64);
    let (_sending, receiving) = connection(&fabric);
    let mut memory = Memory::new(64);
    let registrar = receiving.registrar();
    let mut regions = Vec::new();
    let error = loop {
        let page = memory.page(regions.len());
        // SAFETY: the memory lives longer than its registrations.
        match unsafe { registrar.register(page, PAGE) } {
            Ok(region) => regions.push(region),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoMemory { .. }), "{error:?}");
    let text = error.to_string();
    // The transport itself has some, which the cache does not know of.
    let cached = format!("cached: {} registrations", regions.len());
    for part in ["4096 bytes wanted", "max_mr 64", "pinned ", &cached] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // What failed is tried again by the next.
    drop(regions.pop());
    let page = memory.page(regions.len());
    // SAFETY: as above.
    regions.push(unsafe { registrar.register(page, PAGE) }.unwrap());
}

#[test]
fn memory_of_another_device_is_refused() {
    // Pitfall 65.
    let fabric = fabric(1000);
    let (mut sending, mut receiving) = connection(&fabric);
    let mut memory = Memory::new(1);
    let page = memory.page(0);
    // SAFETY: the memory lives longer than its registrations.
    let region = unsafe { receiving.registrar().register(page, PAGE) }.unwrap();
    let buffer = receiving.registrar().buffer(PAGE).unwrap();
    let ticket = receiving.recv(buffer, 0).wait();
    let refused = loop {
        // SAFETY: the memory is valid, and nothing is posted.
        match unsafe { sending.raw().isend(page, PAGE, 0, Some(&region)) } {
            Ok(None) => {} // the announcement is on its way
            other => break other,
        }
    };
    drop(ticket);
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("registered on r0") && text.contains("used on s0"),
        "{text}"
    );
}

#[test]
fn degenerate_ranges_are_refused() {
    // Pitfall 64.
    let fabric = fabric(1000);
    let (sending, _receiving) = connection(&fabric);
    let mut memory = Memory::new(1);
    let page = memory.page(0);
    for (data, length) in [(std::ptr::null_mut(), 8), (page, 0), (page, usize::MAX)] {
        // SAFETY: nothing is registered.
        let refused = unsafe { sending.registrar().register(data, length) };
        assert!(matches!(refused.err(), Some(Error::InvalidArgument(_))));
    }
}
