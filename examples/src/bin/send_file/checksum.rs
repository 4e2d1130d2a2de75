//! CRC-32, as zlib, gzip and `crc32` have it: the whole copy is compared with the whole file, whatever
//! has happened to the parts on their way through disks, memory and networks.

/// The sum over the bytes so far.
pub(crate) struct Checksum(u32);

/// What each value of a byte does to the sum: division by the polynomial 0x04c11db7, bits reversed.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut rest = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            rest = if rest & 1 == 1 {
                rest >> 1 ^ 0xedb8_8320
            } else {
                rest >> 1
            };
            bit += 1;
        }
        table[byte] = rest;
        byte += 1;
    }
    table
};

impl Checksum {
    pub(crate) fn new() -> Self {
        Self(u32::MAX)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = TABLE[usize::from(self.0 as u8 ^ byte)] ^ self.0 >> 8;
        }
    }

    pub(crate) fn sum(&self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums() {
        let sum = |pieces: &[&[u8]]| {
            let mut checksum = Checksum::new();
            pieces.iter().for_each(|piece| checksum.add(piece));
            checksum.sum()
        };
        assert_eq!(sum(&[b"123456789"]), 0xcbf4_3926);
        assert_eq!(sum(&[b"1234", b"", b"56789"]), 0xcbf4_3926);
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[&[0; 32]]), 0x190a_55ad);
    }
}
