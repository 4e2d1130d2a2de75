//! Messages, between ends of which each waits or polls.

use std::thread;
use std::time::Instant;

use ibnet::{GroupTicket, RecvConnection, SendConnection, Wait};
use ibnet_simverbs::{DeviceSpec, Fabric, Limits};

use crate::rig::executor::run;
use crate::rig::{
    A_WHILE, BOTH, Notify, PATIENCE, fabric, join_devices, join_notified, sent, space, transport,
};

const EACH: [Notify; 4] = [
    BOTH,
    Notify {
        sender: true,
        receiver: false,
    },
    Notify {
        sender: false,
        receiver: true,
    },
    Notify {
        sender: false,
        receiver: false,
    },
];

/// Sends `count` messages of two buffers each, with some under way at a time, and checks them.
fn exchange(mut sending: SendConnection, mut receiving: RecvConnection, count: u32) {
    const UNDER_WAY: usize = 5;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut tickets = std::collections::VecDeque::new();
            for number in 0..count {
                while tickets.len() >= UNDER_WAY {
                    sending.finish(tickets.pop_front().unwrap()).wait().unwrap();
                }
                // The second of each group first: by tag, not by order.
                for tag in [2, 1] {
                    let bytes = [&number.to_le_bytes()[..], &[tag as u8]].concat();
                    let buffer = sent(&sending, &bytes);
                    tickets.push_back(sending.send(buffer, tag).wait().unwrap());
                }
            }
            for ticket in tickets {
                sending.finish(ticket).wait().unwrap();
            }
            // Its last acknowledgement is here: the peer may leave.
            sending
        });
        let mut tickets = std::collections::VecDeque::new();
        let take = |receiving: &mut RecvConnection, ticket: GroupTicket, number: u32| {
            let buffers = receiving.finish(ticket).wait().unwrap();
            for (buffer, tag) in buffers.iter().zip([1, 2]) {
                assert_eq!(buffer[..4], number.to_le_bytes());
                assert_eq!(buffer[4..], [tag]);
            }
        };
        let mut next = 0;
        for _ in 0..count {
            if tickets.len() >= UNDER_WAY {
                take(&mut receiving, tickets.pop_front().unwrap(), next);
                next += 1;
            }
            let buffers = vec![(space(&receiving), 1), (space(&receiving), 2)];
            tickets.push_back(receiving.recv_group(buffers).wait().unwrap());
        }
        for ticket in tickets {
            take(&mut receiving, ticket, next);
            next += 1;
        }
        assert_eq!(next, count);
    });
}

#[test]
fn each_end_waits_or_polls_as_it_likes() {
    for notify in EACH {
        let fabric = fabric(4, 0);
        let transport = transport(&fabric);
        let (sending, receiving) = join_notified(&transport, notify);
        // More than the receives that are posted for announcements.
        exchange(sending, receiving, 1000);
        assert_eq!(fabric.counters().not_ready, 0, "{notify:?}");
        assert_eq!(fabric.counters().overruns, 0, "{notify:?}");
    }
}

#[test]
fn many_paths_over_several_devices_are_waited_for() {
    let fabric = fabric(4, 0);
    let mut config = crate::rig::config();
    config.queue_pairs = 3;
    config.split_data = true;
    config.min_part = Some(128);
    let transport = ibnet::Transport::with_library(fabric.library(), config).unwrap();
    let from = transport.merge(&[0, 2]).unwrap();
    let to = transport.merge(&[1, 3]).unwrap();
    let (sending, receiving) = join_devices(&transport, [from, to], BOTH);
    exchange(sending, receiving, 600);
    assert_eq!(fabric.counters().not_ready, 0);

    let (mut sending, mut receiving) = join_devices(&transport, [from, to], BOTH);
    let large: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
    let buffer = receiving.registrar().buffer(large.len()).unwrap();
    let receive = receiving.recv(buffer, 0).wait().unwrap();
    let buffer = sent(&sending, &large);
    let ticket = sending.send(buffer, 0).wait().unwrap();
    assert!(receiving.finish(receive).wait().unwrap()[..] == large[..]);
    sending.finish(ticket).wait().unwrap();
}

#[test]
fn a_receiver_that_polls_is_not_disturbed() {
    // Announcements without an immediate: one completion for the sender and one for the receiver.
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    for (notify, completions) in [(EACH[3], 2), (EACH[2], 2), (EACH[1], 3), (EACH[0], 3)] {
        let (mut sending, mut receiving) = join_notified(&transport, notify);
        let before = fabric.counters().completions;
        let receive = receiving.recv(space(&receiving), 0).wait().unwrap();
        let send = sending.send(sent(&sending, b"1"), 0).wait().unwrap();
        sending.finish(send).wait().unwrap();
        receiving.finish(receive).wait().unwrap();
        let made = fabric.counters().completions - before;
        assert_eq!(made, completions, "{notify:?}");
    }
}

#[test]
fn a_receive_sleeps_until_its_message_comes() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let (mut sending, mut receiving) = join_notified(&transport, BOTH);
    let ticket = receiving.recv(space(&receiving), 3).wait().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(A_WHILE);
            let ticket = sending.send(sent(&sending, b"late"), 3).wait().unwrap();
            sending.finish(ticket).wait().unwrap();
        });
        let (message, polls) = run(receiving.finish(ticket));
        assert_eq!(message.unwrap()[..], *b"late");
        assert!(polls <= 3, "{polls} polls");
    });
}

#[test]
fn a_send_sleeps_until_a_buffer_is_announced() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let (mut sending, mut receiving) = join_notified(&transport, BOTH);
    thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            // Not the tag that is waited for.
            let other = receiving.recv(space(&receiving), 9).wait().unwrap();
            thread::sleep(A_WHILE);
            let wanted = receiving.recv(space(&receiving), 3).wait().unwrap();
            assert_eq!(receiving.finish(wanted).wait().unwrap()[..], *b"found");
            drop(other);
        });
        // Groups are matched in order: the first is served last.
        let buffer = sent(&sending, b"other");
        let (ticket, _) = run(sending.send(buffer, 9));
        let (buffer, _) = run(sending.finish(ticket.unwrap()));
        buffer.unwrap();
        let buffer = sent(&sending, b"found");
        let (ticket, polls) = run(sending.send(buffer, 3));
        // The two waits before this one may each have left a notification that wakes it in vain.
        assert!(polls <= 4, "{polls} polls");
        let (buffer, _) = run(sending.finish(ticket.unwrap()));
        assert_eq!(buffer.unwrap()[..], *b"found");
        receiver.join().unwrap();
    });
}

#[test]
fn a_full_table_is_waited_for() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let (mut sending, mut receiving) = join_notified(&transport, BOTH);
    let mut tickets = Vec::new();
    for _ in 0..255 {
        let (ticket, _) = run(receiving.recv(space(&receiving), 0));
        tickets.push(ticket.unwrap());
    }
    let (last, _) = run(receiving.recv_group(vec![(space(&receiving), 0)]));
    let last = last.unwrap();
    for _ in 0..256 {
        let ticket = sending.send(sent(&sending, b"x"), 0).wait().unwrap();
        sending.finish(ticket).wait().unwrap();
    }
    for ticket in tickets {
        let (message, _) = run(receiving.finish(ticket));
        assert_eq!(message.unwrap()[..], *b"x");
    }
    let (messages, _) = run(receiving.finish(last));
    assert_eq!(messages.unwrap().len(), 1);
}

#[test]
fn a_connection_made_for_polling_can_be_awaited_all_the_same() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    let (mut sending, mut receiving) = join_notified(&transport, EACH[3]);
    let (ticket, _) = run(receiving.recv(space(&receiving), 0));
    let (send, _) = run(sending.send(sent(&sending, b"polled"), 0));
    let mut receive = receiving.finish(ticket.unwrap());
    let (message, _) = run(&mut receive);
    assert_eq!(message.unwrap()[..], *b"polled");
    let (buffer, _) = run(sending.finish(send.unwrap()));
    assert_eq!(buffer.unwrap()[..], *b"polled");
    // Nothing more comes: it goes on being polled.
    let buffer = sent(&sending, b"x");
    let mut posting = sending.send(buffer, 0);
    assert!(
        posting
            .wait_for(std::time::Duration::from_millis(30))
            .unwrap()
            .is_none()
    );
    assert_eq!(posting.into_inner().unwrap()[..], *b"x");
}

#[test]
fn shallow_completion_queues_have_room_for_some_announcements() {
    // Pitfall 46.
    let limits = Limits {
        max_cqe: 300,
        ..Limits::default()
    };
    let shallow = ["s0", "s1"].map(|name| DeviceSpec::roce(name).limits(limits));
    let fabric = shallow
        .into_iter()
        .fold(Fabric::builder(), |builder, device| builder.device(device));
    let fabric = fabric.build().unwrap();
    let transport = transport(&fabric);
    let (mut sending, mut receiving) = join_notified(&transport, BOTH);
    for _ in 0..3 {
        let tickets: Vec<_> = (0..100)
            .map(|_| receiving.recv(space(&receiving), 0).wait().unwrap())
            .collect();
        for ticket in tickets {
            let send = sending.send(sent(&sending, b"enough"), 0).wait().unwrap();
            assert_eq!(receiving.finish(ticket).wait().unwrap()[..], *b"enough");
            sending.finish(send).wait().unwrap();
        }
    }
    assert_eq!(fabric.counters().overruns, 0);
}

#[test]
fn a_sender_that_sleeps_is_woken_by_an_announcement() {
    let fabric = fabric(4, 0);
    let transport = transport(&fabric);
    for receiver in [true, false] {
        let notify = Notify {
            sender: true,
            receiver,
        };
        let (mut sending, mut receiving) = join_notified(&transport, notify);
        thread::scope(|scope| {
            let sender = scope.spawn(move || {
                let buffer = sent(&sending, b"at last");
                let start = Instant::now();
                let ticket = sending.send(buffer, 0).wait_for(PATIENCE).unwrap();
                assert!(start.elapsed() < PATIENCE, "woken by its limit alone");
                sending.finish(ticket.unwrap()).wait().unwrap();
                sending
            });
            // It sleeps by now, and nothing else will wake it.
            thread::sleep(A_WHILE);
            let ticket = receiving.recv(space(&receiving), 0).wait().unwrap();
            let message = receiving.finish(ticket).wait().unwrap();
            assert_eq!(message[..], *b"at last");
            drop(sender.join().unwrap());
        });
    }
}
