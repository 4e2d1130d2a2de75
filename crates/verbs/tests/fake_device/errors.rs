//! What errors have in common.

use std::error::Error as _;
use std::io;

use verbs::{Error, PostError};

use crate::fake::{Failure, context, fail};

#[test]
fn an_error_names_the_device_and_keeps_its_source() {
    fail("alloc_pd", Failure::Errno(libc::ENOMEM));
    let error = context().allocate_pd().unwrap_err();
    assert!(matches!(&error, Error::AllocatePd { device, .. } if device == "fake_0"));
    let source = error.source().unwrap().downcast_ref::<io::Error>().unwrap();
    assert_eq!(source.raw_os_error(), Some(libc::ENOMEM));
    assert!(error.to_string().contains(&source.to_string()), "{error}");
    assert!(error.to_string().contains("max_pd"), "{error}");
}

#[test]
fn unsupported_is_told_from_failed() {
    fail("query_device", Failure::Errno(libc::EOPNOTSUPP));
    assert!(context().attributes().unwrap_err().is_unsupported());
    fail("query_device", Failure::Errno(libc::EIO));
    assert!(!context().attributes().unwrap_err().is_unsupported());
}

#[test]
fn errors_and_resources_cross_threads() {
    fn cross<T: Send + Sync + 'static>() {}
    cross::<Error>();
    cross::<PostError>();
    cross::<verbs::LoadError>();
    cross::<verbs::Library>();
    cross::<verbs::Device>();
    cross::<verbs::Context>();
    cross::<verbs::ProtectionDomain>();
    cross::<verbs::MemoryRegion>();
    cross::<verbs::CompletionChannel>();
    cross::<verbs::CompletionEvent>();
    cross::<verbs::CompletionQueue>();
    cross::<verbs::QueuePair>();
    cross::<verbs::AsyncEvent>();
    cross::<verbs::SendRequest>();
    cross::<verbs::RecvRequest>();
    cross::<verbs::WorkCompletion>();
}
