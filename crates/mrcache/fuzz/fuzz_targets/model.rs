//! The cache against its naive model.
//!
//! ```console
//! $ cargo +nightly fuzz run --fuzz-dir crates/mrcache/fuzz model
//! $ cargo +nightly fuzz cmin --fuzz-dir crates/mrcache/fuzz model   # before a corpus is committed
//! ```
//!
//! What is in the corpus is played by `cargo test` as well.
#![no_main]

#[path = "../../tests/common/ledger.rs"]
mod ledger;
#[path = "../../tests/common/model.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    model::play(bytes);
});
