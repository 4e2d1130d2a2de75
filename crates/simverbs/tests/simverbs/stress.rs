//! Many threads on one free-running fabric.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ibnet_simverbs::{Random, Target, When};
use ibnet_verbs::{Access, RecvRequest, RemoteAddress, SendRequest, Sge, WcStatus};

use crate::pairs::{End, LENGTH, Memory, Pair, Setup, open_all, two_roce};

const THREADS: usize = 4;

/// Sends numbered messages of random length there and back, and checks each byte.
fn ping_pong(a: &End, b: &End, seed: u64, rounds: u64) {
    let mut random = Random::new(seed);
    for round in 0..rounds {
        let (from, to) = if round % 2 == 0 { (a, b) } else { (b, a) };
        let length = 1 + random.index(LENGTH / 2);
        let (source, target) = (random.index(64), LENGTH / 2 - random.index(64));
        let value = round as u8 | 1;
        from.memory.write(source, &[value]);
        from.memory.write(source + length - 1, &[value]);
        to.receive_immediates([round]);
        let write = SendRequest::write_with_immediate(
            round,
            from.sge(source, length),
            to.remote(target),
            round as u32,
        );
        from.send(&mut [write.signaled()]).unwrap();
        let wait = |end: &End| loop {
            if let Some(wc) = end.poll().first() {
                break *wc;
            }
            thread::yield_now();
        };
        assert_eq!(wait(from).status(), WcStatus::SUCCESS);
        let received = wait(to);
        assert_eq!(received.immediate(), Some(round as u32));
        assert_eq!(received.byte_len() as usize, length);
        assert_eq!(to.memory.read(target..target + 1), [value]);
        assert_eq!(
            to.memory.read(target + length - 1..target + length),
            [value]
        );
    }
}

#[test]
fn connections_of_different_threads_do_not_disturb_each_other() {
    let fabric = two_roce().build().unwrap();
    let contexts = open_all(&fabric);
    let setup = Setup::default();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let contexts = &contexts;
                scope.spawn(move || {
                    for _ in 0..5 {
                        let a = End::new(&contexts[0], &setup);
                        let b = End::new(&contexts[1], &setup);
                        a.connect_to(&b, &setup).unwrap();
                        b.connect_to(&a, &setup).unwrap();
                        ping_pong(&a, &b, thread as u64, 200);
                    }
                })
            })
            .collect();
        // Meanwhile memory is registered and deregistered, and ports report nonsense.
        scope.spawn(|| {
            let pd = contexts[0].allocate_pd().unwrap();
            let memory = Memory::new(1 << 20);
            while !is_over.load(Ordering::Relaxed) {
                // SAFETY: the memory outlives the region.
                let region = unsafe { pd.register(memory.as_ptr(), 1 << 20, Access::empty()) };
                region.unwrap().deregister().unwrap();
                let storm = fabric.faults().event_storm("sim0", 2);
                assert_eq!(storm.struck(), 2);
                while contexts[0].next_event().unwrap().is_some() {}
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    drop(contexts);
    assert!(fabric.live_objects().is_empty());
}

#[test]
fn several_threads_post_to_one_queue_pair() {
    let setup = Setup {
        send_wr: 64,
        recv_wr: 64,
        cq: 1024,
        ..Setup::default()
    };
    let pair = Pair::free_running(&setup);
    let Pair { a, b, .. } = &pair;
    // Long enough that other threads post while it is copied.
    const LONG: usize = 1 << 20;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let (source, target) = (Memory::new(LONG), Memory::new(LONG));
    // SAFETY: both are freed after their regions are gone.
    let (from, to) = unsafe {
        (
            a.pd.register(source.as_ptr(), LONG, access).unwrap(),
            b.pd.register(target.as_ptr(), LONG, access).unwrap(),
        )
    };
    let remote = RemoteAddress {
        address: to.address(),
        rkey: to.rkey(),
    };
    let sge = |length| Sge {
        address: from.address(),
        length,
        lkey: from.lkey(),
    };
    const EACH: u64 = 2000;
    let total = EACH * THREADS as u64;
    let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
    let start = &Barrier::new(THREADS);
    thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            scope.spawn(move || {
                start.wait();
                for number in 0..EACH {
                    let wr_id = thread << 32 | number;
                    let sge = sge(if number % 8 == 0 { LONG as u32 } else { 8 });
                    let name = (thread << 16 | number) as u32;
                    let write = SendRequest::write_with_immediate(wr_id, Some(sge), remote, name);
                    while a.send(&mut [write.signaled()]).is_err() {
                        thread::yield_now();
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut last = [None; THREADS];
            while sent.load(Ordering::Relaxed) < total {
                for wc in a.poll() {
                    assert_eq!(wc.status(), WcStatus::SUCCESS);
                    let thread = (wc.wr_id() >> 32) as usize;
                    assert!(last[thread] < Some(wc.wr_id()), "out of order");
                    last[thread] = Some(wc.wr_id());
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                thread::yield_now();
            }
        });
        scope.spawn(|| {
            let mut posted = 0;
            let mut next = [0; THREADS];
            while received.load(Ordering::Relaxed) < total {
                while posted < total && b.receive(&mut [RecvRequest::new(posted)]).is_ok() {
                    posted += 1;
                }
                for wc in b.poll() {
                    assert_eq!(wc.status(), WcStatus::SUCCESS);
                    assert_eq!(wc.wr_id(), received.load(Ordering::Relaxed));
                    // Each message comes once, and those of a thread in order.
                    let name = wc.immediate().unwrap();
                    let next = &mut next[(name >> 16) as usize];
                    assert_eq!(name & 0xffff, *next);
                    *next += 1;
                    received.fetch_add(1, Ordering::Relaxed);
                }
                thread::yield_now();
            }
        });
    });
    drop((from, to));
    pair.finish();
}

/// Connections are torn down in the middle of transfers, from another thread.
#[test]
fn ends_can_be_destroyed_while_the_other_sends() {
    let fabric = two_roce().build().unwrap();
    let contexts = open_all(&fabric);
    let setup = Setup {
        retries: 0,
        timeout: 1,
        ..Setup::default()
    };
    let tear = fabric.faults().tear_messages(Target::Any, When::Nth(3));
    for round in 0..100 {
        let (a, b) = (
            End::new(&contexts[0], &setup),
            End::new(&contexts[1], &setup),
        );
        a.connect_to(&b, &setup).unwrap();
        b.connect_to(&a, &setup).unwrap();
        let write = SendRequest::write(1, a.sge(0, LENGTH), b.remote(0)).signaled();
        thread::scope(|scope| {
            scope.spawn(|| {
                let start = Instant::now();
                loop {
                    match a.send(&mut [write]) {
                        Ok(()) => {}
                        Err(error) => assert_eq!(error.errno(), Some(libc::ENOMEM)),
                    }
                    if let Some((_, status)) = a
                        .outcomes()
                        .iter()
                        .find(|(_, status)| *status != WcStatus::SUCCESS)
                    {
                        break assert_eq!(*status, WcStatus::RETRY_EXC_ERR);
                    }
                    assert!(start.elapsed() < Duration::from_secs(20), "it never failed");
                }
            });
            thread::sleep(Duration::from_micros(20 * round));
            // Unmaps its memory, too.
            drop(b);
        });
    }
    assert_eq!(tear.struck(), 1);
}
