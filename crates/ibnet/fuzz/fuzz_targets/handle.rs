//! See `ibnet::fuzzing::handle`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ibnet::fuzzing::handle(data));
