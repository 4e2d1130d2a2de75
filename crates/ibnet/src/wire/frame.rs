//! Frames: how messages lie in the byte stream.
//!
//! A frame is a 4-byte length and a 2-byte protocol version, both big-endian, and as many bytes of
//! a postcard-encoded [`Message`]. The length is bounded before anything is stored, so a stranger
//! cannot make us reserve memory; the version stands outside the encoding, so that another release
//! is recognised whatever its messages look like.

use crate::wire::message::{Invalid, Message, PROTOCOL};

/// The most bytes that a message may have.
pub(crate) const MAX_MESSAGE: usize = 64 * 1024;

const HEADER: usize = 6;

/// Appends `message` to `output`.
pub(crate) fn encode(message: &Message, output: &mut Vec<u8>) {
    let start = output.len();
    output.extend_from_slice(&[0; HEADER]);
    let taken = std::mem::take(output);
    *output = match postcard::to_extend(message, taken) {
        Ok(written) => written,
        // Writing plain data into a vector cannot fail; if it did, the empty stream would end the
        // handshake at its deadline.
        Err(_) => return,
    };
    let length = output.len() - start - HEADER;
    debug_assert!(length <= MAX_MESSAGE, "messages are small by construction");
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    output[start..start + 4].copy_from_slice(&length.to_be_bytes());
    output[start + 4..start + HEADER].copy_from_slice(&PROTOCOL.to_be_bytes());
}

/// Collects bytes as they arrive and cuts them into messages.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
}

impl Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether nothing has arrived that was not taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next whole message, checked; `None` if more bytes are needed.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, Invalid> {
        let Some(&[l0, l1, l2, l3, v0, v1]) = self.bytes.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        if u16::from_be_bytes([v0, v1]) != PROTOCOL {
            return Err(Invalid(
                "not this version of the protocol; both ends need the same release",
            ));
        }
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if length == 0 || length > MAX_MESSAGE {
            return Err(Invalid("a message length out of range"));
        }
        let Some(body) = self.bytes.get(HEADER..HEADER + length) else {
            return Ok(None);
        };
        let message = match postcard::take_from_bytes::<Message>(body) {
            Ok((message, [])) => message,
            Ok(_) => return Err(Invalid("bytes after the end of a message")),
            Err(_) => return Err(Invalid("a message that does not parse")),
        };
        message.check()?;
        self.bytes.drain(..HEADER + length);
        Ok(Some(message))
    }
}
