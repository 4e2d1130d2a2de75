//! Forked children, on the simulator: what they have of the parent's memory, what they can do with
//! what they inherit, and that the parent does not notice.
#![allow(clippy::unwrap_used)]

mod rig;

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ibnet::raw::RecvBuffer;
use ibnet::{
    Config, ConnectOptions, Error, RecvConnection, Region, SendConnection, Transport, Wait,
};
use ibnet_simverbs::{Fabric, FabricBuilder};
use ibnet_verbs::{Functions, Library};
use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rig::{End, connection, ends, established, join, roce};

const PAGE: usize = 4096;
const SIZE: usize = 100_000;

fn devices() -> FabricBuilder {
    let devices = roce("s", 1).chain(roce("r", 1));
    devices.fold(Fabric::builder(), FabricBuilder::device)
}

/// One test forks at a time: a child has the sockets of all that are under way.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a child has ended.
#[derive(Debug, PartialEq, Eq)]
enum Child {
    /// With what it found, 0 for nothing wrong.
    Exit(i32),
    Signal(i32),
}

/// Runs `child` in a forked child, to its end. It must not print, nor wait for other threads, of
/// which it has none.
fn in_child(child: impl FnOnce() -> i32) -> Child {
    // SAFETY: the child only calls what does without other threads, and ends without unwinding.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: plain system calls. The alarm ends a child that hangs.
        unsafe { libc::alarm(30) };
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(255);
        // SAFETY: as above.
        unsafe { libc::_exit(found) };
    }
    let mut status = 0;
    // SAFETY: the child is this process's, and the argument a place for its status.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) {
        Child::Exit(libc::WEXITSTATUS(status))
    } else {
        Child::Signal(libc::WTERMSIG(status))
    }
}

/// Pages of a mapping of their own.
struct Pages(NonNull<libc::c_void>, usize);

impl Pages {
    fn new(pages: usize) -> Self {
        let length = NonZeroUsize::new(pages * PAGE).unwrap();
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe { mmap_anonymous(None, length, protection, MapFlags::MAP_PRIVATE) };
        Self(start.unwrap(), length.get())
    }

    fn page(&self, number: usize) -> *mut u8 {
        assert!(number * PAGE < self.1);
        self.0.as_ptr().cast::<u8>().wrapping_add(number * PAGE)
    }

    /// How many mappings of the process share bytes with it.
    fn mappings(&self) -> usize {
        let (start, end) = (self.0.addr().get(), self.0.addr().get() + self.1);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let shares = |line: &&str| {
            let (first, rest) = line.split_once('-').unwrap();
            let (last, _) = rest.split_once(' ').unwrap();
            let parse = |text| usize::from_str_radix(text, 16).unwrap();
            parse(first) < end && start < parse(last)
        };
        maps.lines().filter(shares).count()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; what was registered of it is gone.
        unsafe { munmap(self.0, self.1) }.unwrap();
    }
}

/// Mappings of this process that children do not get (`VmFlags` of proc_pid_smaps(5)).
fn excluded() -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let flags = maps.lines().filter(|line| line.starts_with("VmFlags:"));
    let excluded = flags.filter(|line| line.split(' ').any(|flag| flag == "dc"));
    excluded.count()
}

const REGIONS: usize = 64;

/// Every second page, each registered alone.
fn register(receiving: &RecvConnection, pages: &Pages) -> Vec<Region> {
    let registrar = receiving.registrar();
    let register = |number: usize| {
        let page = pages.page(2 * number);
        // SAFETY: here and below, the page is written while nothing is received there, and stays
        // until the regions are gone.
        unsafe {
            page.write(7);
            registrar.register(page, PAGE).unwrap()
        }
    };
    (0..REGIONS).map(register).collect()
}

/// Reads what was registered.
fn read(pages: &Pages) -> i32 {
    let is_there = |number: usize| {
        // SAFETY: mapped, as far as this process has it: that is the question.
        unsafe { pages.page(2 * number).read_volatile() == 7 }
    };
    i32::from(!(0..REGIONS).all(is_there))
}

#[test]
fn where_the_kernel_copies_pinned_pages_nothing_is_kept_from_children() {
    // Pitfall 67: `ibv_fork_init` of libibverbs 44 splits a mapping for each registration.
    let _alone = alone();
    let fabric = devices().build().unwrap();
    let kept = excluded();
    let (_sending, receiving) = connection(&fabric);
    assert_eq!(excluded(), kept, "the rings of a connection");
    let pages = Pages::new(2 * REGIONS);
    let before = pages.mappings();
    let regions = register(&receiving, &pages);
    assert_eq!(pages.mappings(), before);
    assert_eq!(in_child(|| read(&pages)), Child::Exit(0));
    drop(regions);
}

#[test]
fn where_it_does_not_what_is_registered_is_kept_from_children() {
    // Pitfall 67: or the parent's next write would part its pages from the device's.
    let _alone = alone();
    let fabric = devices().fork_matters().build().unwrap();
    let kept = excluded();
    let (sending, receiving) = connection(&fabric);
    assert!(excluded() > kept);
    let pages = Pages::new(2 * REGIONS);
    let regions = register(&receiving, &pages);
    assert!(pages.mappings() >= 2 * REGIONS - 1);
    assert_eq!(in_child(|| read(&pages)), Child::Signal(libc::SIGSEGV));
    // Dropping touches nothing of it.
    let mut all = Some((sending, receiving, regions));
    let end = in_child(|| {
        drop(all.take());
        0
    });
    assert_eq!(end, Child::Exit(0));
    drop(all);
    assert_eq!(pages.mappings(), 1);
    assert_eq!(in_child(|| read(&pages)), Child::Exit(0));
}

/// Moves a message.
fn message(sending: &mut SendConnection, receiving: &mut RecvConnection, byte: u8) {
    let mut buffer = sending.registrar().buffer(SIZE).unwrap();
    buffer.fill(byte);
    let room = receiving.registrar().buffer(SIZE).unwrap();
    let receive = receiving.recv(room, 0).wait().unwrap();
    let send = sending.send(buffer, 0).wait().unwrap();
    let arrived = receiving.finish(receive).wait().unwrap();
    assert!(arrived.len() == SIZE && arrived.iter().all(|found| *found == byte));
    sending.finish(send).wait().unwrap();
}

/// The connection works, and each end notices when the other one leaves.
fn expect_undisturbed(mut sending: SendConnection, mut receiving: RecvConnection) {
    for byte in 1..20 {
        message(&mut sending, &mut receiving, byte);
    }
    receiving.close().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let told = loop {
        assert!(Instant::now() < deadline, "the end is not noticed");
        // SAFETY: an empty message has no memory.
        match unsafe { sending.raw().isend(std::ptr::null(), 0, 0, None) } {
            Ok(_) => std::thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert!(matches!(told, Error::PeerClosed { .. }), "{told}");
}

/// Calls of this process that end something of the device's.
static ENDED: AtomicU32 = AtomicU32::new(0);

static ORIGINAL: OnceLock<Functions> = OnceLock::new();

/// The functions of `fabric`, of which those that end something are counted.
fn counted(fabric: &Fabric) -> Library {
    macro_rules! counted {
        ($functions:ident, $($name:ident: $object:ident),+) => {
            $(
                unsafe extern "C" fn $name(object: *mut ibnet_verbs::sys::$object) -> libc::c_int {
                    ENDED.fetch_add(1, Ordering::Relaxed);
                    // SAFETY: handed on.
                    unsafe { (ORIGINAL.get().unwrap().$name)(object) }
                }
                $functions.$name = $name;
            )+
        };
    }
    unsafe extern "C" fn modify_qp(
        qp: *mut ibnet_verbs::sys::ibv_qp,
        attributes: *mut ibnet_verbs::sys::ibv_qp_attr,
        mask: libc::c_int,
    ) -> libc::c_int {
        ENDED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: handed on.
        unsafe { (ORIGINAL.get().unwrap().modify_qp)(qp, attributes, mask) }
    }
    let library = fabric.library();
    let mut functions = *library.functions();
    // The functions of all fabrics are the same but for those that list devices.
    let _ = ORIGINAL.set(functions);
    counted!(
        functions,
        destroy_qp: ibv_qp,
        destroy_cq: ibv_cq,
        dereg_mr: ibv_mr,
        dealloc_pd: ibv_pd,
        destroy_comp_channel: ibv_comp_channel,
        close_device: ibv_context
    );
    functions.modify_qp = modify_qp;
    // SAFETY: the functions do what those of the fabric do.
    unsafe { Library::from_functions(functions) }
}

#[test]
fn a_child_that_drops_what_it_inherited_disturbs_nothing() {
    let _alone = alone();
    let fabric = devices().build().unwrap();
    let library = counted(&fabric);
    let from = End::of_library(library.clone(), "s", Config::default());
    let to = End::of_library(library, "r", Config::default());
    let (sending, receiving) = join(&from, &to);
    let mut listener = to.listen();
    let mut connecting = from.connect(&listener);
    let buffer = receiving.registrar().buffer(SIZE).unwrap();
    // Values that the child ends as its own; the parent's are the same bytes and stay.
    let mut all = Some((sending, receiving, listener.handle(), buffer, from, to));
    let ended = ENDED.load(Ordering::Relaxed);
    let end = in_child(|| {
        let (sending, receiving, _, buffer, from, to) = all.take().unwrap();
        let closed = (sending.close().is_ok(), receiving.close().is_ok());
        drop((buffer, from, to));
        i32::from(closed != (true, true)) + 2 * i32::from(ENDED.load(Ordering::Relaxed) != ended)
    });
    assert_eq!(end, Child::Exit(0));
    let (sending, receiving, _, buffer, from, to) = all.unwrap();
    expect_undisturbed(sending, receiving);
    // So is what was only begun.
    let end = in_child(|| {
        let refused = [
            listener.accept().try_now().err(),
            connecting.try_now().err(),
        ];
        let are_told = refused
            .iter()
            .all(|error| matches!(error, Some(Error::Forked)));
        i32::from(!are_told)
    });
    assert_eq!(end, Child::Exit(0));
    let (sending, receiving) = established(connecting, &mut listener);
    expect_undisturbed(sending, receiving);
    drop((listener, buffer, from, to));
    assert!(ENDED.load(Ordering::Relaxed) > ended, "nothing was counted");
    assert!(fabric.live_objects().is_empty());
}

#[test]
fn work_posted_from_a_child_says_that_it_was_forked() {
    let _alone = alone();
    let fabric = devices().build().unwrap();
    let (from, to) = ends(&fabric, |_| {});
    let (mut sending, mut receiving) = join(&from, &to);
    let pages = Pages::new(1);
    let page = pages.page(0);
    // SAFETY: here and below, the page stays until the regions are gone.
    let (source, target) = unsafe {
        (
            sending.registrar().register(page, PAGE).unwrap(),
            receiving.registrar().register(page, PAGE).unwrap(),
        )
    };
    let buffer = |region| RecvBuffer {
        data: page,
        capacity: PAGE,
        tag: 0,
        region: Some(region),
    };
    // SAFETY: as above, and nothing is received into the page before the parent sends.
    let request = unsafe { receiving.raw().irecv(&[buffer(&target)]) }
        .unwrap()
        .unwrap();
    let listener = to.listen();
    let end = in_child(|| {
        let listening = |transport: &Transport| transport.listen(0).err();
        let handle = listener.handle();
        // SAFETY: as above; nothing is posted.
        let errors = unsafe {
            [
                sending.raw().isend(page, 8, 0, Some(&source)).err(),
                receiving.raw().irecv(&[buffer(&target)]).err(),
                receiving.raw().test(request).err(),
                receiving
                    .raw()
                    .iflush(&[(page.cast_const(), 8, &target)])
                    .err(),
                receiving.registrar().register(page, 8).err(),
                listening(&to.transport),
                from.transport
                    .connect(0, &handle, ConnectOptions::default())
                    .err(),
            ]
        };
        let says = |error: &Option<Error>| {
            let text = error.as_ref().map(ToString::to_string).unwrap_or_default();
            text.starts_with("this process was forked after the devices were opened")
        };
        errors
            .iter()
            .position(|error| !says(error))
            .map_or(0, |place| place as i32 + 1)
    });
    assert_eq!(end, Child::Exit(0));
    // The parent goes on where it was.
    let send = loop {
        // SAFETY: as above.
        if let Some(send) = unsafe { sending.raw().isend(page, 8, 0, Some(&source)) }.unwrap() {
            break send;
        }
    };
    while receiving.raw().test(request).unwrap().is_none() {}
    while sending.raw().test(send).unwrap().is_none() {}
    drop((source, target));
    expect_undisturbed(sending, receiving);
}

#[test]
fn a_child_can_open_devices_of_its_own() {
    let _alone = alone();
    let fabric = devices().build().unwrap();
    let (sending, receiving) = connection(&fabric);
    let end = in_child(|| {
        let fabric = devices().build().unwrap();
        let (mut sending, mut receiving) = connection(&fabric);
        message(&mut sending, &mut receiving, 1);
        drop((sending, receiving));
        i32::from(!fabric.live_objects().is_empty())
    });
    assert_eq!(end, Child::Exit(0));
    expect_undisturbed(sending, receiving);
}
