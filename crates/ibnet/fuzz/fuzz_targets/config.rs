//! See `ibnet::fuzzing::config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ibnet::fuzzing::config(data));
