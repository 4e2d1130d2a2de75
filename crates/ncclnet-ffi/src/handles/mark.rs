//! Which object each thread is in a call with, told without an atomic read-modify-write.
//!
//! A compare-and-swap costs as much as ten other instructions, and a message would need four. So
//! each thread has a [`Mark`] that it alone writes, and an object names the mark of the thread that
//! used it last: its owner. A call of the owner writes its mark, *then* looks whether it still is the
//! owner. Who wants to be the owner instead says so first, *then* looks at the mark. The order of
//! each is what it all depends on, and it is bought where calls are rare: the owner only keeps the
//! compiler from reordering ([`light_barrier`]), and the others have the kernel make every thread
//! of the process pass a barrier ([`heavy_barrier`], membarrier(2)).

use std::collections::BTreeMap;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::Duration;

/// What one thread tells of itself. Aligned so that no two threads write to the same cache line.
#[repr(align(128))]
pub(super) struct Mark {
    /// Of which thread: see [`this_thread`]. 0: of none.
    thread: usize,
    /// The address of the slot of the object that the thread is in a call with; 0: with none.
    inside: AtomicUsize,
    /// Calls that have ended.
    calls: AtomicU64,
}

/// The owner of an object that no thread has used.
pub(super) static NOBODY: Mark = Mark::new(0);

/// The owner of an object for as long as its owner changes, or it is being closed.
pub(super) static SEIZED: Mark = Mark::new(0);

impl Mark {
    const fn new(thread: usize) -> Self {
        Self {
            thread,
            inside: AtomicUsize::new(0),
            calls: AtomicU64::new(0),
        }
    }

    /// The mark of this thread. Made at the first time and kept for good: a later thread whose
    /// control block is in the same place goes on with it.
    pub(super) fn mine() -> &'static Self {
        static MARKS: Mutex<BTreeMap<usize, &'static Mark>> = Mutex::new(BTreeMap::new());
        let thread = this_thread();
        let mut marks = MARKS.lock().unwrap_or_else(PoisonError::into_inner);
        marks
            .entry(thread)
            .or_insert_with(|| Box::leak(Box::new(Self::new(thread))))
    }

    /// Whether it is the mark of this thread.
    #[inline]
    pub(super) fn is_mine(&self) -> bool {
        self.thread == this_thread()
    }

    /// This thread, whose mark it is, enters the object in `slot`; false if it is in a call already.
    #[inline]
    pub(super) fn enter(&self, slot: usize) -> bool {
        if self.inside.load(Ordering::Relaxed) != 0 {
            return false;
        }
        // Release: who sees this has seen the end of the call before.
        self.inside.store(slot, Ordering::Release);
        light_barrier();
        true
    }

    /// The call of this thread, whose mark it is, is over.
    #[inline]
    pub(super) fn leave(&self) {
        let calls = self.calls.load(Ordering::Relaxed);
        // Release, both: each of them alone may be what ends somebody's waiting.
        self.calls.store(calls.wrapping_add(1), Ordering::Release);
        self.inside.store(0, Ordering::Release);
    }

    /// Whether the thread is in a call with the object in `slot`. True only for a moment, unless the
    /// caller keeps the thread from entering.
    pub(super) fn is_inside(&self, slot: usize) -> bool {
        self.inside.load(Ordering::Acquire) == slot
    }

    /// Whether the thread, which is this one, is in a call.
    pub(super) fn is_in_a_call(&self) -> bool {
        self.inside.load(Ordering::Relaxed) != 0
    }

    /// Waits until the thread has left the object in `slot`, if it is inside. A call that begins later
    /// is not waited for, or not for longer than this one.
    pub(super) fn wait_until_outside(&self, slot: usize) {
        let calls = self.calls.load(Ordering::Acquire);
        let mut pause = Pause::default();
        while self.is_inside(slot) && self.calls.load(Ordering::Acquire) == calls {
            pause.once();
        }
    }

    /// Whether both are the same mark.
    #[inline]
    pub(super) fn is(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

/// Waiting for something that is over soon.
#[derive(Default)]
pub(super) struct Pause(u32);

impl Pause {
    pub(super) fn once(&mut self) {
        self.0 = self.0.saturating_add(1);
        if self.0 < 100 {
            std::hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}

/// A number that no two living threads share: where the thread's control block is, which the
/// processor has at hand. Never 0.
#[inline]
fn this_thread() -> usize {
    let thread: usize;
    // SAFETY: the first word of the control block is its own address (System V ABI, thread-local
    // storage for x86-64). Nothing else is read, and nothing written.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) thread, options(pure, readonly, nostack, preserves_flags));
    }
    // SAFETY: reads a register that user programs may read.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) thread, options(pure, nomem, nostack, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    {
        thread_local!(static PLACE: u8 = const { 0 });
        thread = PLACE.with(|place| ptr::from_ref(place).addr());
    }
    thread
}

/// Held while barriers become real ones.
static FALLING_BACK: Mutex<()> = Mutex::new(());

/// Whether light barriers must be real ones, because there are no heavy ones.
static IS_FENCED: AtomicBool = AtomicBool::new(true);

/// What this thread wrote before is visible to others before what it reads afterwards is read: as
/// far as [`heavy_barrier`] of the others goes.
#[inline]
fn light_barrier() {
    if IS_FENCED.load(Ordering::Relaxed) {
        fence(Ordering::SeqCst);
    } else {
        compiler_fence(Ordering::SeqCst);
    }
}

/// The other side of [`light_barrier`]: whatever another thread wrote before its barrier is seen from
/// here on, or that thread's barrier is still to come and it will see what this one has written.
pub(super) fn heavy_barrier() {
    make_barriers_light();
    fence(Ordering::SeqCst);
    if IS_FENCED.load(Ordering::SeqCst) {
        // Should they have become real ones just now: not before that is over.
        drop(FALLING_BACK.lock());
        return;
    }
    // A forked child may have to register anew.
    let passed = membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
        .or_else(|_| register())
        .and_then(|()| membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED));
    if passed.is_err() {
        fall_back();
    }
}

/// The kernel's barrier was there and is forbidden now. From here on barriers are real ones; those that
/// were passed without are as good as one once the processors have written what they held back.
#[cold]
fn fall_back() {
    const LONG_ENOUGH: Duration = Duration::from_millis(10);
    let _falling = FALLING_BACK.lock();
    IS_FENCED.store(true, Ordering::SeqCst);
    thread::sleep(LONG_ENOUGH);
}

/// From here on barriers are light ones if this kernel has heavy ones. Cheap, but for the first time.
pub(super) fn make_barriers_light() {
    static REGISTERED: Once = Once::new();
    // Before this is over no barrier is a light one.
    REGISTERED.call_once(|| {
        if register().is_ok() {
            IS_FENCED.store(false, Ordering::SeqCst);
        }
    });
}

fn register() -> io::Result<()> {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

fn membarrier(command: libc::c_int) -> io::Result<()> {
    const FLAGS: libc::c_uint = 0;
    const PROCESSOR: libc::c_int = 0;
    // SAFETY: the call has no effect on memory but the order in which it is seen.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, FLAGS, PROCESSOR) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_its_own_mark_and_keeps_it() {
        let mine = Mark::mine();
        assert!(mine.is(Mark::mine()) && mine.is_mine());
        let other = thread::spawn(|| {
            let other = Mark::mine();
            assert!(other.is_mine());
            ptr::from_ref(other).addr()
        });
        assert_ne!(other.join().ok(), Some(ptr::from_ref(mine).addr()));
        assert!(!NOBODY.is_mine() && !SEIZED.is_mine());
    }

    #[test]
    fn a_thread_is_in_one_call_at_a_time() {
        let mine = Mark::mine();
        assert!(mine.enter(0x80));
        assert!(!mine.enter(0x80) && !mine.enter(0x100));
        assert!(mine.is_inside(0x80) && !mine.is_inside(0x100));
        mine.leave();
        assert!(!mine.is_inside(0x80));
        assert!(mine.enter(0x100));
        mine.leave();
    }

    #[test]
    fn barriers_are_there_on_any_kernel() {
        heavy_barrier();
        heavy_barrier();
        light_barrier();
    }

    #[test]
    fn barriers_that_become_forbidden_are_real_ones_from_then_on() {
        make_barriers_light();
        let were_light = !IS_FENCED.load(Ordering::SeqCst);
        // What `heavy_barrier` does when the kernel refuses. Harmless to other tests: real barriers
        // are as good.
        fall_back();
        assert!(IS_FENCED.load(Ordering::SeqCst));
        let mine = Mark::mine();
        assert!(mine.enter(0x200));
        mine.leave();
        heavy_barrier();
        assert!(
            IS_FENCED.load(Ordering::SeqCst),
            "nothing makes them light again"
        );
        if were_light {
            IS_FENCED.store(false, Ordering::SeqCst);
        }
    }

    /// Store buffering: of two threads that each write and then read what the other writes, at least
    /// one sees the other.
    #[test]
    fn one_of_two_sees_the_other() {
        const ROUNDS: u64 = 20_000;
        let (owner, other) = (AtomicU64::new(0), AtomicU64::new(0));
        let (start, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        heavy_barrier();
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    while start.load(Ordering::Acquire) != round {
                        std::hint::spin_loop();
                    }
                    owner.store(round, Ordering::Relaxed);
                    light_barrier();
                    seen.store(
                        round << 1 | u64::from(other.load(Ordering::Relaxed) == round),
                        Ordering::Release,
                    );
                }
            });
            for round in 1..=ROUNDS {
                start.store(round, Ordering::Release);
                other.store(round, Ordering::Relaxed);
                heavy_barrier();
                let here = owner.load(Ordering::Relaxed) == round;
                let there = loop {
                    let seen = seen.load(Ordering::Acquire);
                    if seen >> 1 == round {
                        break seen & 1 == 1;
                    }
                    thread::yield_now();
                };
                assert!(here || there, "round {round}");
            }
        });
    }
}
