//! Symbols of a library that the dynamic linker does not show.
//!
//! NCCL's own networks are local data of its library: in the symbol table for debuggers, which is
//! there in the releases, but not among what `dlsym` finds.

use std::fs::File;
use std::path::Path;

use object::read::elf::{ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSymbol, ReadCache, ReadRef};

/// Where a symbol is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its address relative to that at which the library is loaded.
    pub(crate) offset: u64,
    /// Its size in bytes.
    pub(crate) size: u64,
}

/// Finds a symbol of data by its name in the full symbol table.
///
/// # Errors
///
/// A line that says what is wrong with the file. A symbol that is not there is `None`.
pub(crate) fn find(file: &Path, name: &str) -> Result<Option<Place>, String> {
    let open = File::open(file).map_err(|error| format!("cannot be opened: {error}"))?;
    // Reads what is looked at: the file may have half a gigabyte, most of it code for GPUs.
    let cache = ReadCache::new(open);
    find_in(&cache, name)
}

fn find_in<'data, R: ReadRef<'data>>(data: R, name: &str) -> Result<Option<Place>, String> {
    let elf = ElfFile64::<Endianness, R>::parse(data)
        .map_err(|error| format!("is not a 64-bit ELF file: {error}"))?;
    let header = elf.elf_header();
    if header.e_type(elf.endian()) != object::elf::ET_DYN {
        return Err("is not a shared library".to_owned());
    }
    let mut found = elf
        .symbols()
        .filter(|symbol| symbol.is_definition() && symbol.name() == Ok(name));
    let place = found.next().map(|symbol| Place {
        offset: symbol.address(),
        size: symbol.size(),
    });
    // Two local symbols may have one name; then there is no telling which is meant.
    if found.any(|other| Some(other.address()) != place.map(|place| place.offset)) {
        return Err(format!("has several symbols {name}"));
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A local symbol of this program, which is a position-independent one and therefore looks like
    /// a library.
    #[used]
    #[unsafe(no_mangle)]
    static NCCLNET_BENCH_TEST_DATA: [u64; 3] = [1, 2, 3];

    #[test]
    fn local_data_is_found_with_its_size() {
        let program = std::env::current_exe().unwrap();
        let place = find(&program, "NCCLNET_BENCH_TEST_DATA").unwrap().unwrap();
        assert_eq!(place.size, 24);
        // Both are where the same base puts them.
        let here = (&raw const NCCLNET_BENCH_TEST_DATA).addr() as u64;
        assert_eq!((here - place.offset) % 4096, 0);
        assert_eq!(find(&program, "no_such_symbol_here").unwrap(), None);
    }

    #[test]
    fn other_files_are_refused() {
        let folder = std::env::temp_dir().join(format!("ncclnet-bench-elf-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("file");
        for bytes in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", &[0; 5000]] {
            std::fs::write(&file, bytes).unwrap();
            assert!(find(&file, "x").unwrap_err().contains("ELF"), "{bytes:?}");
        }
        assert!(
            find(&folder.join("none"), "x")
                .unwrap_err()
                .contains("opened")
        );
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_cut_short_is_an_error_or_lacks_the_symbol() {
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for length in (0..whole.len()).step_by(whole.len() / 40) {
            if let Ok(place) = find_in(&whole[..length], "NCCLNET_BENCH_TEST_DATA") {
                assert_eq!(place, None);
            }
        }
    }
}
