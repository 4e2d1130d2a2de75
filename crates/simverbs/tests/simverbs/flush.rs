//! The error state: nothing is touched once it is told. `conformance` observes what is flushed.

use std::thread;
use std::time::Duration;

use ibnet_simverbs::When;
use ibnet_verbs::{Access, MemoryRegion, RecvRequest, SendRequest, Sge, WcStatus};

use crate::pairs::{Memory, Pair, Setup};

#[test]
fn error_completions_say_nothing_but_who_and_why() {
    let pair = Pair::stepped(
        1,
        &Setup {
            send_wr: 64,
            ..Setup::default()
        },
    );
    let Pair { a, fabric, .. } = &pair;
    a.qp.to_error().unwrap();
    let mut chain = [SendRequest::send(1, None); 40];
    a.send(&mut chain).unwrap();
    fabric.run_until_idle();
    let polled = a.poll();
    assert_eq!((polled.len(), fabric.counters().flushed), (40, 40));
    for wc in &polled {
        assert_eq!((wc.qp_num(), wc.wr_id()), (a.qp.number(), 1));
        assert_ne!(wc.vendor_error(), 0);
    }
    // Opcode and length are garbage, a different one each time.
    let mut garbage: Vec<_> = polled
        .iter()
        .map(|wc| (wc.opcode().raw(), wc.byte_len()))
        .collect();
    garbage.sort_unstable();
    garbage.dedup();
    assert!(garbage.len() > 30);
}

/// Moving a queue pair to ERR must stop its peer's packets for good, or memory could not be reused.
#[test]
fn nothing_lands_after_the_move_to_error() {
    for seed in 0..50 {
        let pair = Pair::stepped(seed, &Setup::default());
        let Pair { a, b, fabric } = &pair;
        let torn = fabric.faults().tear_messages(&a.qp, When::ALWAYS);
        a.memory.write(0, &[1; 4096]);
        let mut chain = [SendRequest::write(1, a.sge(0, 4096), b.remote(0)); 4];
        a.send(&mut chain).unwrap();
        for _ in 0..seed % 12 {
            fabric.step();
        }
        b.qp.to_error().unwrap();
        let before = b.memory.read(0..4096);
        fabric.advance(Duration::from_secs(1));
        assert_eq!(b.memory.read(0..4096), before);
        assert_eq!(torn.struck() > 0, seed % 12 > 0);
        assert!(matches!(
            a.outcomes().first(),
            Some((1, WcStatus::RETRY_EXC_ERR)) | None
        ));
    }
}

/// A flushed receive gives its memory back, so that no copy to it may be under way any more.
#[test]
fn a_receive_is_not_flushed_while_its_memory_is_written() {
    const LENGTH: usize = 16 << 20;
    let mut interrupted = 0;
    for round in 0..60 {
        let pair = Pair::free_running(&Setup::default());
        let Pair { a, b, fabric } = &pair;
        let (source, target) = (Memory::new(LENGTH), Memory::new(LENGTH));
        source.write(0, &[1]);
        source.write(LENGTH - 1, &[1]);
        // SAFETY: both are freed after their regions are gone.
        let (from, to) = unsafe {
            (
                a.pd.register(source.as_ptr(), LENGTH, Access::empty())
                    .unwrap(),
                b.pd.register(target.as_ptr(), LENGTH, Access::LOCAL_WRITE)
                    .unwrap(),
            )
        };
        let sge = |region: &MemoryRegion| Sge {
            address: region.address(),
            length: LENGTH as u32,
            lkey: region.lkey(),
        };
        b.receive(&mut [RecvRequest::new(5).with_sge(sge(&to))])
            .unwrap();
        thread::scope(|scope| {
            let sender = scope.spawn(|| a.send(&mut [SendRequest::send(1, Some(sge(&from)))]));
            thread::sleep(Duration::from_micros(50 * round));
            fabric.hca("sim1").unwrap().fail();
            let outcome = loop {
                match b.outcomes()[..] {
                    [] => thread::yield_now(),
                    [(5, status)] => break status,
                    ref other => panic!("{other:?}"),
                }
            };
            let at_completion = target.read(LENGTH - 1..LENGTH);
            sender.join().unwrap().unwrap();
            assert_eq!(target.read(LENGTH - 1..LENGTH), at_completion);
            let has_begun = target.read(0..1) == [1];
            interrupted += u32::from(outcome == WcStatus::WR_FLUSH_ERR && has_begun);
        });
        drop((from, to));
    }
    assert!(interrupted > 0, "no round hit the copy");
}
