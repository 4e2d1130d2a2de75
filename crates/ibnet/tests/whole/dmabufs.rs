//! Memory that is registered as DMA-BUF: by its addresses, whatever descriptor it was exported with.

use std::os::fd::AsFd;

use ibnet::raw::RecvBuffer;
use ibnet::{Error, RecvConnection, Region, SendConnection, Wait};

use crate::exported::Exported;
use crate::rig::{connection, ends, eventually, fabric, filled, join};

const PAGE: usize = 4096;

/// Receives a message of `byte`s through `region` into the `size` bytes at `offset`.
fn receive(
    (sending, receiving): (&mut SendConnection, &mut RecvConnection),
    memory: &Exported,
    (offset, size): (usize, usize),
    region: &Region,
    byte: u8,
) {
    let buffer = RecvBuffer {
        data: memory.at(offset),
        capacity: size,
        tag: 0,
        region: Some(region),
    };
    // SAFETY: memory and region outlive the request.
    let request = unsafe { receiving.raw().irecv(&[buffer]) }
        .unwrap()
        .unwrap();
    let send = sending.send(filled(sending, size, byte), 0).wait().unwrap();
    let received = eventually("receiving", || receiving.raw().test(request).unwrap());
    assert_eq!(received.sizes(), [u32::try_from(size).unwrap()]);
    sending.finish(send).wait().unwrap();
    let arrived = memory.read(offset, size);
    assert!(
        arrived.iter().all(|found| *found == byte),
        "{byte} at {offset}"
    );
}

#[test]
fn memory_that_is_exported_twice_is_registered_once_per_device() {
    // Pitfall 57: with a new inode each time, as NVIDIA's driver exports it.
    const DEVICES: usize = 2;
    let fabric = fabric(1, DEVICES);
    let (sender, receiver) = ends(&fabric, |_| {});
    let (mut sending, mut receiving) = join(&sender, &receiver);
    let memory = Exported::new(16 * PAGE);
    let registrar = receiving.registrar();
    let register = |offset: usize, length: usize, descriptor: &dyn AsFd, at: u64| {
        let data = memory.at(offset);
        // SAFETY: the memory outlives its registrations, and is the only one at its addresses.
        unsafe { registrar.register_dmabuf(data, length, at, descriptor.as_fd()) }.unwrap()
    };
    let before = fabric.live_objects().mrs;
    let registrations = || fabric.live_objects().mrs - before;

    let first = register(0, memory.length(), &memory.export(), 0);
    assert_eq!(registrations(), DEVICES);
    let again = register(
        0,
        memory.length(),
        &memory.export_again(0, memory.length()),
        0,
    );
    // A part, exported alone.
    let part = register(
        3 * PAGE,
        2 * PAGE,
        &memory.export_again(3 * PAGE, 2 * PAGE),
        0,
    );
    // A part of an export whose offsets are others.
    let inner = register(
        4 * PAGE + 100,
        1000,
        &memory.export_again(3 * PAGE, 2 * PAGE),
        PAGE as u64 + 100,
    );
    // Another connection of these devices.
    let (other_sending, other_receiving) = join(&sender, &receiver);
    let more = fabric.live_objects().mrs;
    // SAFETY: as above.
    let elsewhere = unsafe {
        let descriptor = memory.export_again(0, memory.length());
        let registrar = other_receiving.registrar();
        registrar.register_dmabuf(memory.at(0), memory.length(), 0, descriptor.as_fd())
    };
    assert_eq!(fabric.live_objects().mrs, more);
    drop(elsewhere.unwrap());
    drop((other_sending, other_receiving));
    assert_eq!(registrations(), DEVICES);

    let whole = (0, memory.length());
    receive((&mut sending, &mut receiving), &memory, whole, &first, 1);
    receive((&mut sending, &mut receiving), &memory, whole, &again, 2);
    receive(
        (&mut sending, &mut receiving),
        &memory,
        (3 * PAGE, 2 * PAGE),
        &part,
        3,
    );
    receive(
        (&mut sending, &mut receiving),
        &memory,
        (4 * PAGE + 100, 1000),
        &inner,
        4,
    );

    // The one that made it goes; the registration does not.
    first.deregister().unwrap();
    assert_eq!(registrations(), DEVICES);
    receive((&mut sending, &mut receiving), &memory, whole, &again, 5);
    inner.deregister().unwrap();
    part.deregister().unwrap();
    assert_eq!(registrations(), DEVICES);
    again.deregister().unwrap();
    assert_eq!(registrations(), 0);
}

#[test]
fn a_part_of_a_dmabuf_does_not_vouch_for_the_rest() {
    // Pitfall 57: once the whole is given back, the rest of its addresses may be other memory.
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    let memory = Exported::new(4 * PAGE);
    let registrar = receiving.registrar();
    let before = fabric.live_objects().mrs;
    let register = |pages: usize| {
        let (length, descriptor) = (pages * PAGE, memory.export());
        // SAFETY: the memory outlives its registrations, and is the only one at its addresses.
        unsafe { registrar.register_dmabuf(memory.at(0), length, 0, descriptor.as_fd()) }.unwrap()
    };
    let whole = register(4);
    let part = register(1);
    assert_eq!(fabric.live_objects().mrs, before + 1);
    whole.deregister().unwrap();
    let new = register(2);
    assert_eq!(fabric.live_objects().mrs, before + 2);
    receive((&mut sending, &mut receiving), &memory, (0, PAGE), &part, 1);
    receive(
        (&mut sending, &mut receiving),
        &memory,
        (0, 2 * PAGE),
        &new,
        2,
    );
    drop((part, new));
    assert_eq!(fabric.live_objects().mrs, before);
}

#[test]
fn host_memory_and_a_dmabuf_at_its_addresses_are_registered_each_in_its_way() {
    // Pitfall 57: by another call of the driver, so another registration.
    let fabric = fabric(1, 1);
    let (_sending, receiving) = connection(&fabric);
    let memory = Exported::new(PAGE);
    let registrar = receiving.registrar();
    let before = fabric.live_objects().mrs;
    let descriptor = memory.export();
    // SAFETY: the memory outlives its registrations, and is the only one at its addresses.
    let _both = unsafe {
        (
            registrar
                .register_device_memory(memory.at(0), PAGE)
                .unwrap(),
            registrar
                .register_dmabuf(memory.at(0), PAGE, 0, descriptor.as_fd())
                .unwrap(),
        )
    };
    assert_eq!(fabric.live_objects().mrs, before + 2);
}

#[test]
fn what_is_registered_in_mid_page_is_where_its_offset_says() {
    // Pitfall 58: the address is rounded down for the device, and the offset with it.
    const AT: usize = PAGE + 100;
    const SIZE: usize = PAGE;
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    let memory = Exported::new(3 * PAGE);
    let register = |offset: usize| {
        let descriptor = memory.export();
        // SAFETY: the memory outlives its registrations, and is the only one at its addresses.
        unsafe {
            let registrar = receiving.registrar();
            registrar.register_dmabuf(memory.at(AT), SIZE, offset as u64, descriptor.as_fd())
        }
    };
    // No rounding makes these agree.
    let refused = register(AT + 1).err().unwrap();
    assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
    // Nor does the memory go on there.
    let refused = register(3 * PAGE + 100).err().unwrap();
    assert!(matches!(refused, Error::InvalidArgument(_)), "{refused}");
    let region = register(AT).unwrap();
    receive(
        (&mut sending, &mut receiving),
        &memory,
        (AT, SIZE),
        &region,
        9,
    );
    assert!(memory.read(0, AT).iter().all(|byte| *byte == 0));
    let rest = memory.read(AT + SIZE, 2 * PAGE - AT);
    assert!(rest.iter().all(|byte| *byte == 0));
}
