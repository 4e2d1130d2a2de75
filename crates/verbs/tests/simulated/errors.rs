//! What errors have in common.

use std::error::Error as _;
use std::io;

use ibnet_verbs::{Error, Operation, PostError};

use crate::tap::{Failure, context, fail};

#[test]
fn an_error_names_the_device_and_keeps_its_source() {
    fail("alloc_pd", Failure::Errno(libc::ENOMEM));
    let error = context().allocate_pd().unwrap_err();
    assert!(error.operation == Operation::AllocatePd && error.device == "sim0");
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
    cross::<ibnet_verbs::LoadError>();
    cross::<ibnet_verbs::Library>();
    cross::<ibnet_verbs::Device>();
    cross::<ibnet_verbs::Context>();
    cross::<ibnet_verbs::ProtectionDomain>();
    cross::<ibnet_verbs::MemoryRegion>();
    cross::<ibnet_verbs::CompletionChannel>();
    cross::<ibnet_verbs::CompletionEvent>();
    cross::<ibnet_verbs::CompletionQueue>();
    cross::<ibnet_verbs::QueuePair>();
    cross::<ibnet_verbs::AsyncEvent>();
    cross::<ibnet_verbs::SendRequest>();
    cross::<ibnet_verbs::RecvRequest>();
    cross::<ibnet_verbs::WorkCompletion>();
}
