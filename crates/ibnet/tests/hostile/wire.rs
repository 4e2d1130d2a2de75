//! The protocol's bytes, by hand: a second writing of what `handshake::message` and
//! `handshake::frame` describe, in types that are wider than what is allowed.
//!
//! Numbers of more than one byte, counts and the kinds of things are written seven bits at a time,
//! lowest first; single bytes, flags and the bytes of texts as they are; an optional thing is a 1
//! and the thing, or a 0.

/// The protocol's version.
pub(crate) const VERSION: u16 = 6;

/// Kinds of messages.
pub(crate) const HELLO: u64 = 0;
pub(crate) const PLAN: u64 = 1;
pub(crate) const ENDPOINT: u64 = 2;
pub(crate) const READY: u64 = 3;
pub(crate) const REFUSAL: u64 = 4;
pub(crate) const CLOSING: u64 = 5;

/// Link layers.
pub(crate) const INFINIBAND: u64 = 0;
pub(crate) const ETHERNET: u64 = 1;

/// Something that is written and read.
pub(crate) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(input: &mut &[u8]) -> Self;
}

impl Wire for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn get(input: &mut &[u8]) -> Self {
        let (first, rest) = input.split_first().expect("the message is longer");
        *input = rest;
        *first
    }
}

impl Wire for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut left = *self;
        while left > 0x7f {
            out.push(left as u8 | 0x80);
            left >>= 7;
        }
        out.push(left as u8);
    }

    fn get(input: &mut &[u8]) -> Self {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = u8::get(input);
            value |= Self::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }
}

impl Wire for [u8; 16] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self);
    }

    fn get(input: &mut &[u8]) -> Self {
        std::array::from_fn(|_| u8::get(input))
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn get(input: &mut &[u8]) -> Self {
        (0..u64::get(input)).map(|_| T::get(input)).collect()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(self.is_some()).put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn get(input: &mut &[u8]) -> Self {
        (u8::get(input) == 1).then(|| T::get(input))
    }
}

macro_rules! messages {
    ($($name:ident { $($field:ident: $type:ty,)* })*) => {$(
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) struct $name { $(pub(crate) $field: $type,)* }

        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn get(input: &mut &[u8]) -> Self {
                Self { $($field: Wire::get(input),)* }
            }
        }
    )*};
}

messages! {
    Hello {
        cookie: [u8; 16],
        party: Party,
        queue_pairs: u8,
        service_level: u8,
        traffic_class: u8,
        notify: u8,
    }

    Party {
        host: Vec<u8>,
        process: u64,
        devices: Vec<Offer>,
    }

    Offer {
        name: Vec<u8>,
        port: u8,
        link: u64,
        lid: u64,
        gid: [u8; 16],
        gid_index: u8,
        prefix_length: Option<u8>,
        roce_version: Option<u8>,
        rail: Option<u8>,
        mtu: u64,
        max_message: u64,
        reorders: u8,
    }

    Plan {
        party: Party,
        paths: Vec<Path>,
        queue_pairs: Vec<QueuePairEnd>,
        entry_bytes: u8,
        first_entry: u64,
        size_table: RemoteArea,
    }

    Path {
        connector_device: u8,
        listener_device: u8,
        mtu: u64,
        reorders: u8,
    }

    QueuePairEnd {
        number: u64,
        psn: u64,
        ece: Option<Ece>,
    }

    Ece {
        vendor_id: u64,
        options: u64,
    }

    RemoteArea {
        address: u64,
        rkeys: Vec<u64>,
    }

    Endpoint {
        queue_pairs: Vec<QueuePairEnd>,
        ring: RemoteArea,
    }

    Refusal {
        reason: Vec<u8>,
    }

    Closing {
        parts_taken: Vec<u64>,
    }
}

/// Nothing but its kind.
pub(crate) struct Ready {}

impl Wire for Ready {
    fn put(&self, _: &mut Vec<u8>) {}

    fn get(_: &mut &[u8]) -> Self {
        Self {}
    }
}

/// The bytes of a message of kind `kind`, without a frame.
pub(crate) fn body(kind: u64, message: &impl Wire) -> Vec<u8> {
    let mut body = Vec::new();
    kind.put(&mut body);
    message.put(&mut body);
    body
}

/// A frame that says that `length` bytes of version `version` follow, and these.
pub(crate) fn frame_of(length: u32, version: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend(version.to_be_bytes());
    frame.extend(body);
    frame
}

/// A good frame.
pub(crate) fn frame(kind: u64, message: &impl Wire) -> Vec<u8> {
    let body = body(kind, message);
    frame_of(body.len() as u32, VERSION, &body)
}

/// Takes a message of kind `kind` from the beginning of a stream, if it is there as a whole.
pub(crate) fn take<T: Wire>(kind: u64, stream: &mut Vec<u8>) -> Option<T> {
    let length = u32::from_be_bytes(*stream.first_chunk()?) as usize;
    let mut body = stream.get(6..6 + length)?;
    assert_eq!(stream[4..6], VERSION.to_be_bytes());
    assert_eq!(u64::get(&mut body), kind, "another kind of message");
    let message = T::get(&mut body);
    assert!(body.is_empty(), "the message is shorter");
    stream.drain(..6 + length);
    Some(message)
}
