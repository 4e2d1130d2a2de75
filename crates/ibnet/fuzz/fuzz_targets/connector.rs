//! See `ibnet::fuzzing::connector`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ibnet::fuzzing::connector(data));
