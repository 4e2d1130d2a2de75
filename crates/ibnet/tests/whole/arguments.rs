//! What a caller of the raw layer may get wrong.

use ibnet::Error;
use ibnet::Wait;
use ibnet::raw::{RecvBuffer, RequestId};

use crate::rig::log::Log;
use crate::rig::{connection, ends, fabric, filled, join, message};

const NOWHERE: RecvBuffer<'static> = RecvBuffer {
    data: std::ptr::null_mut(),
    capacity: 0,
    tag: 0,
    region: None,
};

#[test]
fn every_wrong_argument_is_an_error_and_the_connection_goes_on() {
    // Pitfall 83.
    let fabric = fabric(2, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    let (other_sending, other_receiving) = connection(&fabric);
    let mut memory = vec![0_u8; 8192];
    let data = memory.as_mut_ptr();
    // SAFETY: the memory outlives all regions, which are dropped at the end of this function.
    let region = |registrar: ibnet::Registrar| unsafe { registrar.register(data, 8192) }.unwrap();
    let for_sending = region(sending.registrar());
    let for_receiving = region(receiving.registrar());
    let of_another = region(other_sending.registrar());
    let of_another_receiver = region(other_receiving.registrar());
    let before = (sending.outstanding(), receiving.outstanding());

    // SAFETY: none of these calls posts anything, which is what is tested.
    unsafe {
        let far = data.wrapping_add(1 << 20);
        for (what, refused) in [
            ("no registration", sending.raw().isend(data, 10, 0, None)),
            (
                "null",
                sending
                    .raw()
                    .isend(std::ptr::null(), 10, 0, Some(&for_sending)),
            ),
            (
                "beyond it",
                sending.raw().isend(far, 10, 0, Some(&for_sending)),
            ),
            (
                "too long",
                sending.raw().isend(data, 1 << 20, 0, Some(&for_sending)),
            ),
            (
                "endless",
                sending.raw().isend(data, usize::MAX, 0, Some(&for_sending)),
            ),
            (
                "another's",
                sending.raw().isend(data, 10, 0, Some(&of_another)),
            ),
            (
                "a receiver's",
                sending.raw().isend(data, 10, 0, Some(&for_receiving)),
            ),
        ] {
            assert!(
                matches!(refused, Err(Error::InvalidArgument(_))),
                "{what}: {refused:?}"
            );
        }
        let to = |data, capacity, region| RecvBuffer {
            data,
            capacity,
            tag: 0,
            region,
        };
        let nine = [const { NOWHERE }; 9];
        for (what, buffers) in [
            ("none", &nine[..0]),
            ("nine", &nine[..]),
            ("no registration", &[to(data, 10, None)][..]),
            (
                "null",
                &[to(std::ptr::null_mut(), 10, Some(&for_receiving))],
            ),
            ("beyond it", &[to(far, 10, Some(&for_receiving))]),
            ("too long", &[to(data, usize::MAX, Some(&for_receiving))]),
            ("a sender's", &[to(data, 10, Some(&for_sending))]),
            ("another's", &[to(data, 10, Some(&of_another_receiver))]),
            (
                "the second",
                &[to(data, 10, Some(&for_receiving)), to(data, 10, None)],
            ),
        ] {
            let refused = receiving.raw().irecv(buffers);
            assert!(
                matches!(refused, Err(Error::InvalidArgument(_))),
                "{what}: {refused:?}"
            );
        }
    }
    assert_eq!((sending.outstanding(), receiving.outstanding()), before);
    message(&mut sending, &mut receiving, 100, 100);
}

#[test]
fn requests_that_are_done_or_foreign_are_refused() {
    // Pitfall 83: a handle is compared before it is used.
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    for raw in [0, 1, 255, 256, 0xffff, 0x1_0000, u32::MAX] {
        let request = RequestId::from_raw(raw);
        assert!(matches!(
            sending.raw().test(request),
            Err(Error::StaleRequest { .. })
        ));
        assert!(matches!(
            receiving.raw().test(request),
            Err(Error::StaleRequest { .. })
        ));
    }
    // SAFETY: empty messages have no memory.
    let (receive, send) = unsafe {
        let receive = receiving.raw().irecv(&[NOWHERE]).unwrap().unwrap();
        let send = crate::rig::eventually("the announcement", || {
            sending.raw().isend(std::ptr::null(), 0, 0, None).unwrap()
        });
        (receive, send)
    };
    crate::rig::eventually("the send", || sending.raw().test(send).unwrap());
    crate::rig::eventually("the receive", || receiving.raw().test(receive).unwrap());
    assert!(matches!(
        sending.raw().test(send),
        Err(Error::StaleRequest { .. })
    ));
    assert!(matches!(
        receiving.raw().test(receive),
        Err(Error::StaleRequest { .. })
    ));
    message(&mut sending, &mut receiving, 100, 100);
}

#[test]
fn a_full_table_is_no_error_at_either_end() {
    // Pitfalls 94 and 95: the 257th request is to be tried again, and then succeeds.
    let fabric = fabric(1, 1);
    let (sender, receiver) = ends(&fabric, |_| {});
    let (mut sending, mut receiving) = join(&sender, &receiver);
    // SAFETY: empty messages have no memory.
    unsafe {
        let receives: Vec<_> = (0..256)
            .map(|_| receiving.raw().irecv(&[NOWHERE]).unwrap().unwrap())
            .collect();
        assert_eq!(receiving.raw().irecv(&[NOWHERE]).unwrap(), None);
        let sends: Vec<_> = (0..256)
            .map(|number| {
                sending
                    .raw()
                    .isend(std::ptr::null(), 0, 0, None)
                    .unwrap()
                    .ok_or(number)
            })
            .collect();
        assert!(sends.iter().all(Result::is_ok));
        // None of them was asked for, though all may be done.
        assert_eq!(
            sending.raw().isend(std::ptr::null(), 0, 0, None).unwrap(),
            None
        );
        assert_eq!((sending.outstanding(), receiving.outstanding()), (256, 256));
        for receive in receives {
            crate::rig::eventually("a receive", || receiving.raw().test(receive).unwrap());
        }
        for send in sends {
            crate::rig::eventually("a send", || sending.raw().test(send.unwrap()).unwrap());
        }
    }
    message(&mut sending, &mut receiving, 100, 100);
}

#[test]
fn a_message_without_a_buffer_of_its_tag_waits_and_is_logged() {
    // Pitfall 80.
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    let group = [5, 1].map(|tag| (receiving.registrar().buffer(8).unwrap(), tag));
    let receive = receiving.recv_group(group.into()).wait().unwrap();
    let log = Log::of(tracing::Level::WARN);
    tracing::subscriber::with_default(log.clone(), || {
        let send = sending.send(filled(&sending, 8, 7), 1).wait().unwrap();
        sending.finish(send).wait().unwrap();
        for _ in 0..(1 << 20) + 1000 {
            // SAFETY: an empty message has no memory.
            let refused = unsafe { sending.raw().isend(std::ptr::null(), 0, 2, None) };
            assert_eq!(refused.unwrap(), None);
        }
    });
    let lines = log.lines();
    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert!(line.contains("tag 2") && line.contains("[5]"), "{line}");
    // A message that has a buffer is not held up by it.
    for tag in [5, 2] {
        if tag == 2 {
            drop(
                receiving
                    .recv(receiving.registrar().buffer(8).unwrap(), 2)
                    .wait()
                    .unwrap(),
            );
        }
        let send = sending.send(filled(&sending, 8, 7), tag).wait().unwrap();
        sending.finish(send).wait().unwrap();
    }
    receiving.finish(receive).wait().unwrap();
}

#[test]
fn a_device_is_found_by_its_name() {
    let fabric = fabric(2, 1);
    let (sender, _) = ends(&fabric, |_| {});
    let transport = &sender.transport;
    let names: Vec<String> = transport.devices().into_iter().map(|d| d.name).collect();
    for (index, name) in names.iter().enumerate() {
        assert_eq!(transport.device(name).unwrap(), index);
        assert_eq!(transport.device(&format!("{name}:1")).unwrap(), index);
    }
    for unknown in ["", "mlx5_77", "s0:2"] {
        let error = transport.device(unknown).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)));
        assert!(error.to_string().contains(&names[0]), "{error}");
    }
}
