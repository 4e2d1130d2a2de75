//! Registering memory: which function, which flags, which arguments are refused.

use std::ptr;

use ibnet_simverbs::{DeviceSpec, RegionKind};
use ibnet_verbs::{Access, Error, Operation, ProtectionDomain};

use crate::tap::{
    Failure, called, context, fabric, fail, is_refused, oldest_context, open, set_errno, tap,
};

const PAGE: u64 = 0x1_0000; // A multiple of every page size there is.

/// The access flags of the last registration.
fn flags() -> u32 {
    tap(|tap| tap.access)
}

/// Registers some bytes of this test's own.
fn register(pd: &ProtectionDomain, access: Access) -> Result<ibnet_verbs::MemoryRegion, Error> {
    let memory: &'static mut [u8] = Box::leak(vec![0; 4096].into_boxed_slice());
    // SAFETY: the memory is never freed and not used otherwise.
    unsafe { pd.register(memory.as_mut_ptr(), memory.len(), access) }
}

#[test]
fn usual_access_is_registered_by_the_usual_function() {
    let fabric = fabric(DeviceSpec::roce("sim0"));
    let pd = open(&fabric).allocate_pd().unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let region = register(&pd, access).unwrap();
    assert_eq!((called("reg_mr"), called("reg_mr_iova2")), (1, 0));
    let [seen] = fabric.hca("sim0").unwrap().regions()[..] else {
        panic!("one region");
    };
    assert_eq!(
        (seen.start, seen.length, seen.access, seen.kind),
        (region.address(), 4096, access, RegionKind::Process)
    );
    assert_eq!(
        (region.lkey(), region.rkey(), region.length()),
        (seen.lkey, seen.rkey, 4096)
    );
    assert_ne!(region.lkey(), region.rkey());
    assert!(region.pd().ptr_eq(&pd));
}

#[test]
fn optional_access_takes_the_function_that_may_drop_it() {
    let pd = context().allocate_pd().unwrap();
    register(&pd, Access::LOCAL_WRITE | Access::RELAXED_ORDERING).unwrap();
    assert_eq!(flags(), 0x10_0001);
    // Also a bit of the optional range that has no name yet.
    register(&pd, Access::from_bits_retain(1 << 29 | 1)).unwrap();
    assert_eq!(flags(), 1 << 29 | 1);
    assert_eq!((called("reg_mr_iova2"), called("reg_mr")), (2, 0));
}

#[test]
fn optional_access_is_dropped_where_the_library_cannot_do_it() {
    let pd = oldest_context().allocate_pd().unwrap();
    register(&pd, Access::LOCAL_WRITE | Access::RELAXED_ORDERING).unwrap();
    assert_eq!((called("reg_mr"), flags()), (1, 1));
}

#[test]
fn unknown_bits_that_are_not_optional_are_passed_on() {
    let pd = context().allocate_pd().unwrap();
    // It is the kernel that refuses them.
    let error = register(&pd, Access::from_bits_retain(1 << 31 | 1)).unwrap_err();
    assert!(!is_refused(&error));
    assert_eq!((called("reg_mr"), flags()), (1, 1 << 31 | 1));
}

#[test]
fn ranges_that_cannot_be_are_refused_without_a_call() {
    let pd = context().allocate_pd().unwrap();
    let mut byte = 0_u8;
    let refused = |address: *mut u8, length, problem: &str| {
        // SAFETY: nothing is registered, because the range is refused.
        let error = unsafe { pd.register(address, length, Access::empty()) }.unwrap_err();
        assert!(is_refused(&error));
        assert_eq!(error.errno(), Some(libc::EINVAL));
        assert!(error.to_string().contains(problem), "{error}");
    };
    refused(&raw mut byte, 0, "length is 0");
    refused(ptr::null_mut(), 1, "null");
    refused(&raw mut byte, usize::MAX, "address space");
    assert_eq!(called("reg_mr"), 0);
}

#[test]
fn the_last_byte_of_the_address_space_is_left_to_the_kernel() {
    let pd = context().allocate_pd().unwrap();
    let last = ptr::without_provenance_mut(usize::MAX);
    // SAFETY: nothing is registered, because nothing is mapped there.
    let error = unsafe { pd.register(last, 1, Access::empty()) }.unwrap_err();
    assert!(!is_refused(&error), "{error}");
    assert_eq!(called("reg_mr"), 1);
}

#[test]
fn the_limits_of_registrations_are_named() {
    let pd = context().allocate_pd().unwrap();
    fail("reg_mr", Failure::Errno(libc::ENOMEM));
    let error = register(&pd, Access::LOCAL_WRITE).unwrap_err();
    let text = error.to_string();
    for part in ["sim0", "4096 bytes", "LOCAL_WRITE", "max_mr"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let is_bound = ibnet_verbs::LockedMemory::of_this_process().limit.is_some();
    assert_eq!(text.contains("ulimit -l"), is_bound, "{text}");
    set_errno(libc::ENOMEM);
    fail("reg_mr", Failure::Silent);
    assert_eq!(
        register(&pd, Access::LOCAL_WRITE).unwrap_err().errno(),
        None
    );
}

#[test]
fn deregistering_reports_what_dropping_only_logs() {
    let pd = context().allocate_pd().unwrap();
    register(&pd, Access::empty())
        .unwrap()
        .deregister()
        .unwrap();
    assert_eq!(called("dereg_mr"), 1);
    fail("dereg_mr", Failure::Errno(libc::EBUSY));
    let error = register(&pd, Access::empty())
        .unwrap()
        .deregister()
        .unwrap_err();
    assert!(matches!(
        error.operation,
        Operation::Deregister { length: 4096, .. }
    ));
    // Once, not again when the region is dropped.
    assert_eq!(called("dereg_mr"), 2);
}

#[test]
fn a_dmabuf_whose_offset_and_address_disagree_is_refused() {
    let pd = context().allocate_pd().unwrap();
    for (offset, length, iova, problem) in [
        (0, 100, PAGE + 8, "differ within a page"),
        (PAGE + 8, 100, PAGE, "differ within a page"),
        (0, 0, 0, "length is 0"),
        (0, 2, u64::MAX, "address space"),
        (u64::MAX, 2, 0, "address space"),
    ] {
        // SAFETY: nothing is registered, because the range is refused.
        let error = unsafe { pd.register_dmabuf(offset, length, iova, 0, Access::empty()) };
        let error = error.unwrap_err();
        assert!(is_refused(&error));
        assert!(error.to_string().contains(problem), "{error}");
    }
    assert_eq!(called("reg_dmabuf_mr"), 0);
}

#[test]
fn probing_for_dmabufs_tells_bad_descriptors_from_no_support() {
    let pd = context().allocate_pd().unwrap();
    // Pitfall 12: an errno that an earlier call left behind means nothing.
    set_errno(libc::EOPNOTSUPP);
    pd.probe_dmabuf().unwrap();
    assert_eq!(called("reg_dmabuf_mr"), 1);
    assert_eq!(called("dereg_mr"), 0);
    for errno in [libc::EOPNOTSUPP, libc::EPROTONOSUPPORT] {
        fail("reg_dmabuf_mr", Failure::Errno(errno));
        let error = pd.probe_dmabuf().unwrap_err();
        assert!(error.is_unsupported(), "{error}");
    }
    fail("reg_dmabuf_mr", Failure::Errno(libc::EIO));
    assert_eq!(pd.probe_dmabuf().unwrap_err().errno(), Some(libc::EIO));

    let pd = oldest_context().allocate_pd().unwrap();
    let error = pd.probe_dmabuf().unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("ibv_reg_dmabuf_mr"));
    assert!(error.is_unsupported());
}

#[test]
fn access_is_printed_by_name() {
    let access = Access::LOCAL_WRITE | Access::RELAXED_ORDERING;
    assert_eq!(access.to_string(), "LOCAL_WRITE | RELAXED_ORDERING");
    assert_eq!(Access::empty().to_string(), "local read access");
    assert!(Access::OPTIONAL.contains(Access::RELAXED_ORDERING));
    assert!(!Access::OPTIONAL.intersects(Access::REMOTE_WRITE));
}
