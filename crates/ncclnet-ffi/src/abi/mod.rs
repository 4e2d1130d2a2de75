//! The C ABI of NCCL's network plugins, API versions 2 to 12, as Rust declarations.
//!
//! Only layout lives here: numbers, structs, function types and one table struct per version. A test holds every
//! size and offset to the C compiler's. Field and function names follow NCCL's headers in Rust spelling; what a
//! field means is said where it is declared for the newest version, and the older ones say only what differs.
//!
//! The layouts are those of 64-bit Linux (LP64). A program in Rust can load any such plugin with
//! these types alone; C programs use `include/ncclnet_ibnet.h`, which says the same in C.

mod callbacks;
mod constants;
mod functions;
mod properties;
mod result;
mod structs;
mod tables;

pub use callbacks::*;
pub use constants::*;
pub use functions::*;
pub use properties::*;
pub use result::*;
pub use structs::*;
pub use tables::*;

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("the layouts of NCCL's plugin ABI are declared for 64-bit Linux only");
