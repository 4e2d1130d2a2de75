//! See `ibnet::fuzzing::message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ibnet::fuzzing::message(data));
