//! See `ibnet::fuzzing::inbox`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ibnet::fuzzing::inbox(data));
