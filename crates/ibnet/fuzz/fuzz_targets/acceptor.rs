//! See `ibnet::fuzzing::acceptor`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ibnet::fuzzing::acceptor(data));
