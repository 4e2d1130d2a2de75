//! Inputs to begin with: small ones that take each target through its usual course and past its
//! first checks. They are committed as `fuzz/corpus/TARGET/NAME`.
//!
//! When the protocol changes, this writes them anew; whatever else is there stays:
//!
//! ```text
//! cargo test -p ibnet --lib fuzzing::seeds::write -- --ignored
//! ```

use std::path::PathBuf;

use super::samples::{self, KINDS, frame};
use crate::wire::cts;
use crate::wire::handle::Handle;
use crate::wire::immediate::{Immediate, SizeTold, generation};

/// A target, a name and an input.
type Seed = (&'static str, String, Vec<u8>);

fn seeds() -> Vec<Seed> {
    let mut seeds = messages();
    seeds.extend(handles());
    seeds.extend(settings());
    seeds.extend(inboxes());
    seeds.extend(rings());
    seeds.extend(closes());
    seeds
}

const NAMES: [&str; KINDS] = [
    "hello", "plan", "endpoint", "ready", "refusal", "drained", "offer", "closing",
];

fn messages() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut all = Vec::new();
    for (kind, name) in NAMES.iter().enumerate() {
        let framed = frame(&samples::message(kind, 2));
        seeds.push((
            "message",
            format!("{name}_body"),
            [&[1, 7], &framed[6..]].concat(),
        ));
        seeds.push((
            "message",
            format!("{name}_stream"),
            [&[0, 1], &framed[..]].concat(),
        ));
        all.extend(framed);
    }
    seeds.push((
        "message",
        "all_in_a_row".to_owned(),
        [&[0, 5], &all[..]].concat(),
    ));
    seeds
}

fn handles() -> Vec<Seed> {
    let addresses = [
        ("ipv4", "10.1.2.3:4567", "10.1.3.3"),
        ("ipv6", "[2001:db8::1]:65535", "2001:db8::2"),
        ("link_local", "[fe80::1%7]:1", "10.1.2.3"),
    ];
    addresses
        .map(|(name, address, other)| {
            let others = [other.parse().unwrap()];
            let handle = Handle::new(address.parse().unwrap(), samples::COOKIE, others);
            ("handle", name.to_owned(), handle.to_bytes().to_vec())
        })
        .to_vec()
}

fn settings() -> Vec<Seed> {
    let texts = [
        (
            "devices",
            "NCCL_IB_HCA=^=mlx5_0:1,mlx5_1\nNCCL_SOCKET_IFNAME==eth0,lo\n",
        ),
        (
            "rails",
            "NCCL_IB_HCA=mlx5_0:1:7:3,mlx5_1::8\nNCCL_SOCKET_FAMILY=AF_INET6\n",
        ),
        (
            "ports",
            "IBNET_PORT_RANGE=30000-30100\nIBNET_CONNECT_TIMEOUT=5\n",
        ),
        (
            "numbers",
            "NCCL_IB_TIMEOUT=22\nNCCL_IB_RETRY_CNT=7\nNCCL_IB_SL=-1\nNCCL_IB_TC=106\n\
             NCCL_IB_GID_INDEX=3\nNCCL_IB_QPS_PER_CONNECTION=4\nNCCL_IB_AR_THRESHOLD=-2\n\
             NCCL_SOCKET_RETRY_CNT=3\nIBNET_MIN_PART=128\nNCCL_IB_MQP_RETRY_SLEEP_MSEC=0\n",
        ),
        (
            "choices",
            "NCCL_IB_PKEY_VALUE=0x8001\nIBNET_PATH_POLICY=least-outstanding\n\
             NCCL_IB_DATA_DIRECT=2\nNCCL_IB_PCI_RELAXED_ORDERING=1\nNCCL_IB_ADAPTIVE_ROUTING=-2\n",
        ),
        (
            "partition",
            "NCCL_IB_PKEY=5\nNCCL_IB_ECE_ENABLE=0\nNCCL_IB_USE_INLINE=1\n",
        ),
        ("out_of_range", "NCCL_IB_TIMEOUT=32\n"),
    ];
    texts
        .map(|(name, text)| ("config", name.to_owned(), text.as_bytes().to_vec()))
        .to_vec()
}

fn inboxes() -> Vec<Seed> {
    let begin = |first: u64| [&first.to_le_bytes()[..], &[255]].concat();
    let group =
        |buffers: u8, capacity: u32| [&[0, buffers - 1][..], &capacity.to_le_bytes()].concat();
    let expected = |which: u8, told: u8, parts: u8, bytes: u32, table: u32| {
        let sizes = [bytes.to_le_bytes(), table.to_le_bytes()].concat();
        [&[2, which, told, parts - 1][..], &sizes].concat()
    };
    let any = |id: u64| {
        let immediate = Immediate {
            slot: cts::slot(id) as u8,
            size_told: SizeTold::BySum,
            parts: 1,
            generation: generation(id),
        };
        [&[1][..], &immediate.encode().to_le_bytes(), &[0; 8]].concat()
    };
    let named = |name: &str, parts: &[Vec<u8>]| ("inbox", name.to_owned(), parts.concat());
    vec![
        named(
            "three_ways_to_tell_the_size",
            &[
                begin(256),
                group(3, 1000),
                expected(2, 0, 1, 999, 0),
                expected(0, 1, 1, 1, 0),
                expected(0, 2, 1, 1, 555),
            ],
        ),
        named(
            "many_parts",
            &[
                begin(256),
                group(1, 1000),
                expected(0, 0, 2, 500, 0),
                expected(0, 0, 2, 500, 0),
            ],
        ),
        named(
            "sum_that_overflows",
            &[
                begin(256),
                group(1, 1000),
                expected(0, 0, 3, u32::MAX, 0),
                expected(0, 0, 3, 100, 0),
                expected(0, 0, 3, 0, 0),
            ],
        ),
        named(
            "around_the_end_of_numbers",
            &[
                begin(u64::MAX - 1),
                group(4, 8),
                any(0),
                any(u64::MAX),
                any(u64::MAX - 1),
                any(1),
                group(8, 8),
            ],
        ),
        named("not_announced", &[begin(256), group(1, 8), any(257)]),
        named("another_lap", &[begin(256), group(1, 8), any(512)]),
        named(
            "too_large",
            &[begin(256), group(1, 8), expected(0, 0, 1, 9, 0)],
        ),
        named(
            "no_room",
            &[
                [&0_u64.to_le_bytes()[..], &[3]].concat(),
                group(3, 8),
                group(3, 8),
            ],
        ),
    ]
}

fn rings() -> Vec<Seed> {
    let begin = |first: u64, is_wide: u8| [&first.to_le_bytes()[..], &[is_wide]].concat();
    let entry = |ahead: u8, group: u8, position: u8, tag: u8, capacity: u32| {
        let rest = [
            &capacity.to_le_bytes()[..],
            &0x7f00_0000_2000_u64.to_le_bytes(),
        ]
        .concat();
        [&[1, ahead, group, position, tag][..], &rest].concat()
    };
    let send = |tag: u8| vec![2, tag];
    let look = |tag: u8| vec![3, tag];
    let write =
        |word: u16, value: u64| [&[0][..], &word.to_le_bytes(), &value.to_le_bytes()].concat();
    let named = |name: &str, parts: &[Vec<u8>]| ("matching", name.to_owned(), parts.concat());
    vec![
        named(
            "one",
            &[
                begin(256, 0),
                look(5),
                entry(0, 1, 0, 5, 100),
                look(6),
                send(5),
                look(5),
            ],
        ),
        named(
            "group_in_any_order",
            &[
                begin(256, 1),
                entry(0, 3, 0, 1, 10),
                send(3),
                entry(2, 3, 2, 3, 10),
                send(3),
                entry(1, 3, 1, 2, 10),
                send(2),
                send(1),
                entry(0, 1, 0, 9, 10),
                send(9),
            ],
        ),
        named(
            "around_the_end_of_numbers",
            &[
                begin(u64::MAX, 0),
                entry(0, 2, 0, 1, 1),
                entry(1, 2, 1, 1, 1),
                send(1),
                send(1),
            ],
        ),
        named(
            "group_of_none",
            &[begin(0, 0), entry(0, 0, 0, 1, 1), send(1)],
        ),
        named(
            "group_of_nine",
            &[begin(0, 0), entry(0, 9, 0, 1, 1), send(1)],
        ),
        named(
            "wrong_position",
            &[
                begin(0, 0),
                entry(0, 2, 0, 1, 1),
                entry(1, 2, 5, 2, 1),
                send(2),
            ],
        ),
        named(
            "wrong_group",
            &[
                begin(0, 1),
                entry(0, 2, 0, 1, 1),
                entry(1, 3, 1, 2, 1),
                send(2),
            ],
        ),
        named(
            "too_large",
            &[begin(0, 1), entry(0, 1, 0, 1, 1 << 31), send(1)],
        ),
        named(
            "words",
            &[begin(7, 0), write(31, 7), look(0), write(30, 1), send(0)],
        ),
    ]
}

fn closes() -> Vec<Seed> {
    let path = |posted: u16, acknowledged: u16| {
        [posted.to_le_bytes(), acknowledged.to_le_bytes()].concat()
    };
    let says = |counts: &[u64]| {
        let bytes: Vec<u8> = counts
            .iter()
            .flat_map(|count| count.to_le_bytes())
            .collect();
        [&[1, counts.len() as u8 - 1][..], &bytes].concat()
    };
    let raw = |bytes: &[u8]| [&[0][..], bytes].concat();
    let named = |name: &str, parts: &[Vec<u8>]| ("control", name.to_owned(), parts.concat());
    let two = || [&[1][..], &path(10, 4), &path(300, 100)].concat();
    vec![
        named("all_taken", &[two(), says(&[10, 300])]),
        named("some_taken", &[two(), says(&[5, 99])]),
        named("more_than_posted", &[two(), says(&[11, 300])]),
        named("endless", &[two(), says(&[u64::MAX, u64::MAX])]),
        named("too_few_paths", &[two(), says(&[10])]),
        named("refusal", &[two(), raw(&frame(&samples::message(4, 1)))]),
        named(
            "closing_as_it_is",
            &[two(), raw(&frame(&samples::message(5, 2)))],
        ),
        named("garbage", &[two(), raw(b"GET / HTTP/1.1\r\n\r\n")]),
    ]
}

/// Where the corpus of `target` is.
pub(super) fn folder(target: &str) -> PathBuf {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    package.join("fuzz/corpus").join(target)
}

#[test]
#[ignore = "writes into the source tree"]
fn write() {
    for (target, name, input) in seeds() {
        std::fs::create_dir_all(folder(target)).unwrap();
        std::fs::write(folder(target).join(name), input).unwrap();
    }
}

#[test]
fn the_corpus_is_of_this_protocol() {
    for (target, name, input) in seeds() {
        let committed = std::fs::read(folder(target).join(&name));
        assert!(
            committed.is_ok_and(|committed| committed == input),
            "{target}/{name} is of another version of the protocol or of the target; \
             `cargo test -p ibnet --lib fuzzing::seeds::write -- --ignored` writes it anew"
        );
    }
}
