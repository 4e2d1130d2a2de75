//! NCCL's library without its code for GPUs.
//!
//! Almost all of the file's half gigabyte is code for GPUs and debug information. For a machine with
//! little memory and no GPU, a copy is made that has neither: where the GPU code was, the copy has
//! zeros, which take no room in the file because they are memory that a segment adds to what it
//! loads. Code, data and symbols for the processor stay as they are, at their addresses.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use object::elf::{
    FileHeader64, PT_LOAD, PT_NOTE, ProgramHeader64, SHT_STRTAB, SHT_SYMTAB, SectionHeader64,
    SymbolSection,
};
use object::pod::bytes_of;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable};
use object::{Endianness, ReadCache, ReadRef, U16, U32, U64};

type Elf = FileHeader64<Endianness>;
type Segment = ProgramHeader64<Endianness>;
type Section = SectionHeader64<Endianness>;

/// Sections with code for GPUs.
const GPU_SECTIONS: &[&str] = &[".nv_fatbin", "__nv_relfatbin"];
/// Every x86-64 and most ARM systems have pages of this size.
const PAGE: u64 = 4096;

/// Copies a library, without its code for GPUs and its debug information.
///
/// # Errors
///
/// A line that says what is wrong with the file, or why the copy could not be written.
pub(crate) fn shrink(from: &Path, to: &Path) -> Result<(), String> {
    let input = File::open(from).map_err(|error| format!("{}: {error}", from.display()))?;
    let cache = ReadCache::new(input);
    let copy = plan(&cache).map_err(|problem| format!("{}: {problem}", from.display()))?;
    let write = || -> std::io::Result<()> {
        let mut output = File::create(to)?;
        for (offset, bytes) in &copy.parts {
            output.seek(SeekFrom::Start(*offset))?;
            output.write_all(bytes)?;
        }
        output.sync_all()?;
        fs::set_permissions(to, fs::metadata(from)?.permissions())
    };
    write().map_err(|error| format!("cannot write {}: {error}", to.display()))
}

/// What the copy consists of: bytes and where they go.
struct Copy<'data> {
    parts: Vec<(u64, std::borrow::Cow<'data, [u8]>)>,
}

fn plan<'data, R: ReadRef<'data>>(data: R) -> Result<Copy<'data>, String> {
    let say = |error: object::Error| error.to_string();
    let header = Elf::parse(data).map_err(say)?;
    let endian = header.endian().map_err(say)?;
    let segments = header.program_headers(endian, data).map_err(say)?;
    let sections = header.sections(endian, data).map_err(say)?;
    let hole = hole(endian, &sections)?;
    let mut parts = Vec::new();
    let mut moved = Moved::default();
    let mut next = 0;
    let mut place = |parts: &mut Vec<_>, from: u64, length: u64| -> Result<u64, String> {
        // The loader maps whole pages: an offset keeps its place within the page.
        let to = next_with_remainder(next, from % PAGE);
        let bytes = data
            .read_bytes_at(from, length)
            .map_err(|()| "the file is cut short".to_owned())?;
        parts.push((to, bytes.into()));
        next = to + length;
        Ok(to)
    };
    let mut new_segments: Vec<Segment> = Vec::new();
    let mut spare = 0;
    for segment in segments {
        match segment.p_type(endian) {
            PT_LOAD => {
                let (start, length) = segment.file_range(endian);
                let end = start.saturating_add(length);
                if start <= hole.start && hole.end <= end {
                    let before = place(&mut parts, start, hole.start - start)?;
                    moved.add(start, hole.start, before);
                    let after = place(&mut parts, hole.end, end - hole.end)?;
                    moved.add(hole.end, end, after);
                    new_segments.extend(split(endian, segment, &hole, before, after));
                } else {
                    let at = place(&mut parts, start, length)?;
                    moved.add(start, end, at);
                    let mut copy = *segment;
                    copy.p_offset = U64::new(endian, at);
                    new_segments.push(copy);
                }
            }
            // Notes say who built the file. They make room for the additional segment.
            PT_NOTE => spare += 1,
            _ => new_segments.push(*segment),
        }
    }
    if spare == 0 || new_segments.len() > segments.len() {
        return Err("there is no room for another segment".to_owned());
    }
    for segment in &mut new_segments {
        if segment.p_type(endian) != PT_LOAD
            && let Some(offset) = moved.of(segment.p_offset(endian))
        {
            segment.p_offset = U64::new(endian, offset);
        }
    }
    let table = header.e_phoff.get(endian);
    let mut bytes: Vec<u8> = new_segments
        .iter()
        .flat_map(|segment| bytes_of(segment).iter().copied())
        .collect();
    // Segments of type 0 are ignored.
    bytes.resize(size_of_val(segments), 0);
    parts.push((table, bytes.into()));
    let (section_table, count) = symbols(endian, data, &sections, &mut next, &mut parts)?;
    let mut new_header = *header;
    new_header.e_shoff = U64::new(endian, section_table);
    new_header.e_shnum = U16::new(endian, count);
    // The section names are the last section.
    new_header.e_shstrndx = U16::new(endian, SymbolSection(count - 1));
    parts.push((0, bytes_of(&new_header).to_vec().into()));
    Ok(Copy { parts })
}

/// The range of file offsets that is left out: whole pages within the sections of GPU code.
fn hole<'data, R: ReadRef<'data>>(
    endian: Endianness,
    sections: &SectionTable<'data, Elf, R>,
) -> Result<std::ops::Range<u64>, String> {
    let ranges = GPU_SECTIONS.iter().filter_map(|name| {
        let (_, section) = sections.section_by_name(endian, name.as_bytes())?;
        section.file_range(endian)
    });
    let ranges: Vec<(u64, u64)> = ranges.collect();
    let start = ranges.iter().map(|(start, _)| *start).min();
    let end = ranges.iter().map(|(start, length)| start + length).max();
    match (start, end) {
        (Some(start), Some(end)) if end - start > 2 * PAGE => {
            Ok(start.next_multiple_of(PAGE)..end / PAGE * PAGE)
        }
        _ => Err(format!("there is no GPU code in it ({GPU_SECTIONS:?})")),
    }
}

/// The two segments that a segment with a hole becomes. The first adds zeros up to the second.
fn split(
    endian: Endianness,
    segment: &Segment,
    hole: &std::ops::Range<u64>,
    before: u64,
    after: u64,
) -> [Segment; 2] {
    let start = segment.p_offset(endian);
    let address = segment.p_vaddr(endian);
    let mut first = *segment;
    first.p_offset = U64::new(endian, before);
    first.p_filesz = U64::new(endian, hole.start - start);
    first.p_memsz = U64::new(endian, hole.end - start);
    first.p_align = U64::new(endian, PAGE);
    let mut second = *segment;
    let skipped = hole.end - start;
    second.p_offset = U64::new(endian, after);
    second.p_vaddr = U64::new(endian, address + skipped);
    second.p_paddr = second.p_vaddr;
    second.p_filesz = U64::new(endian, segment.p_filesz(endian) - skipped);
    second.p_memsz = U64::new(endian, segment.p_memsz(endian) - skipped);
    second.p_align = U64::new(endian, PAGE);
    [first, second]
}

/// Where ranges of the file went.
#[derive(Default)]
struct Moved(Vec<(std::ops::Range<u64>, u64)>);

impl Moved {
    fn add(&mut self, start: u64, end: u64, to: u64) {
        self.0.push((start..end, to));
    }

    fn of(&self, offset: u64) -> Option<u64> {
        let found = self.0.iter().find(|(range, _)| range.contains(&offset));
        found.map(|(range, to)| offset - range.start + to)
    }
}

/// The smallest number from `least` on that lies `remainder` behind the beginning of a page.
fn next_with_remainder(least: u64, remainder: u64) -> u64 {
    let page = least / PAGE * PAGE;
    if page + remainder >= least {
        page + remainder
    } else {
        page + PAGE + remainder
    }
}

/// Adds the symbol table, its names, and a table of the sections that are left: where it is, and how
/// many they are.
fn symbols<'data, R: ReadRef<'data>>(
    endian: Endianness,
    data: R,
    sections: &SectionTable<'data, Elf, R>,
    next: &mut u64,
    parts: &mut Vec<(u64, std::borrow::Cow<'data, [u8]>)>,
) -> Result<(u64, u16), String> {
    const NAMES: &[u8] = b"\0.symtab\0.strtab\0.shstrtab\0";
    const NAME_OFFSETS: [u32; 3] = [1, 9, 17];
    let mut add = |bytes: std::borrow::Cow<'data, [u8]>| {
        let at = next.next_multiple_of(16);
        *next = at + bytes.len() as u64;
        parts.push((at, bytes));
        at
    };
    let find = |name: &str| {
        let found = sections.section_by_name(endian, name.as_bytes());
        found
            .map(|(_, section)| section)
            .ok_or_else(|| format!("there is no section {name}"))
    };
    let (table, names) = (find(".symtab")?, find(".strtab")?);
    let read = |section: &Section| {
        section
            .data(endian, data)
            .map_err(|error| error.to_string())
    };
    let mut kept: Vec<Section> = Vec::new();
    for (section, bytes, name) in [
        (table, read(table)?, NAME_OFFSETS[0]),
        (names, read(names)?, NAME_OFFSETS[1]),
        (names, NAMES, NAME_OFFSETS[2]),
    ] {
        let mut copy = *section;
        copy.sh_name = U32::new(endian, name);
        copy.sh_offset = U64::new(endian, add(bytes.into()));
        copy.sh_size = U64::new(endian, bytes.len() as u64);
        debug_assert!(matches!(copy.sh_type(endian), SHT_SYMTAB | SHT_STRTAB));
        kept.push(copy);
    }
    // The names are the section after the table; 0 is the null section.
    kept[0].sh_link = U32::new(endian, 2);
    let mut bytes = vec![0; size_of::<Section>()];
    for section in &kept {
        bytes.extend_from_slice(bytes_of(section));
    }
    let at = add(bytes.into());
    Ok((at, kept.len() as u16 + 1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::ffi::{CString, c_int};
    use std::process::Command;

    use super::super::elf;
    use super::*;

    #[test]
    fn offsets_keep_their_place_in_the_page() {
        for (least, remainder, expected) in [
            (0, 0, 0),
            (1, 0, PAGE),
            (5, 5, 5),
            (6, 5, PAGE + 5),
            (PAGE + 1, 7, PAGE + 7),
            (2 * PAGE, 0, 2 * PAGE),
        ] {
            assert_eq!(next_with_remainder(least, remainder), expected);
        }
    }

    /// What matters of NCCL's library: code, a table of local data with relocations, and code for GPUs
    /// between what must stay.
    const LIBRARY: &str = "\
        __attribute__((section(\".nv_fatbin\"), used)) const char gpu[1 << 20] = {1};\n\
        static int answer(void) { return 42; }\n\
        static int (*table[22])(void) __attribute__((used)) = {answer};\n\
        static const char *const words[] = {\"a\", \"few\", \"words\"};\n\
        int ask(int which) { return table[0]() + words[which][0] + gpu[9999]; }\n";

    #[test]
    fn the_copy_works_and_is_small() {
        let folder = std::env::temp_dir().join(format!("ncclnet-shrink-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (source, whole, copy) = (folder.join("l.c"), folder.join("l.so"), folder.join("s.so"));
        fs::write(&source, LIBRARY).unwrap();
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let status = Command::new(compiler)
            .args(["-shared", "-fPIC", "-O1", "-Wl,--build-id", "-o"])
            .args([&whole, &source])
            .status()
            .expect("a C compiler is needed, as it is for linking Rust programs");
        assert!(status.success());
        shrink(&whole, &copy).unwrap();
        assert!(fs::metadata(&whole).unwrap().len() > 1 << 20);
        assert!(fs::metadata(&copy).unwrap().len() < 100_000);
        let place = elf::find(&whole, "table").unwrap();
        assert!(place.is_some_and(|place| place.size == 176));
        assert_eq!(elf::find(&copy, "table").unwrap(), place);

        let name = CString::new(copy.to_str().unwrap()).unwrap();
        // SAFETY: the library was made above, and has no constructors of its own.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null());
        // SAFETY: the library is open.
        let ask = unsafe { libc::dlsym(library, c"ask".as_ptr()) };
        assert!(!ask.is_null());
        // SAFETY: the function was compiled from the text above.
        let answer = unsafe {
            let ask: extern "C" fn(c_int) -> c_int = std::mem::transmute(ask);
            ask(1)
        };
        assert_eq!(answer, 42 + i32::from(b'f'));
        // There is no GPU code any more.
        let again = shrink(&copy, &folder.join("again.so")).unwrap_err();
        assert!(again.contains("no GPU code"), "{again}");
        fs::remove_dir_all(folder).unwrap();
    }
}
