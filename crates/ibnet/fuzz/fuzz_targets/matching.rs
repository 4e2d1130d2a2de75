//! See `ibnet::fuzzing::matching`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ibnet::fuzzing::matching(data));
