//! See `ibnet::fuzzing::control`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ibnet::fuzzing::control(data));
