//! The known faults of NCCL's GID selection, by number. Those that concern one parser or one table
//! alone are tested there: 21 and 28 with the parsers of `index.rs` and `range.rs`, 30 with
//! `class.rs`, the reading side of 23, 26 and 32 in `ibnet-verbs`.
#![allow(clippy::unwrap_used)]

#[path = "../examples/verdicts/text/mod.rs"]
mod text;

use std::fmt::Write;

use ibnet_gid::{Cause, Entry, Policy, VerdictKind, Wish, flid, select};
use ibnet_verbs::LinkLayer;
use text::parse;

fn entries(text: &str) -> Vec<Entry> {
    parse(text).unwrap().remove(0).entries
}

fn index(text: &str, policy: &Policy) -> Option<u32> {
    let selection = select(&entries(text), LinkLayer::Ethernet, policy);
    selection.ok().map(|selection| selection.entry.index)
}

fn by_default(text: &str) -> Option<u32> {
    index(text, &Policy::default())
}

#[test]
fn pitfall_7_the_choice_follows_the_table() {
    let tables = [
        ("1 v2 fe80::1 on eth2\n3 v2 10.1.2.3 on eth2", Some(3)),
        // The address came back at another index.
        ("1 v2 fe80::1 on eth2\n7 v2 10.1.2.3 on eth2", Some(7)),
        ("1 v2 fe80::1 on eth2", Some(1)),
        ("1 v2 fe80::1 on eth2 (down)", None),
        ("2 v2 2001:db8::1 on eth2\n1 v2 fe80::1 on eth2", Some(2)),
    ];
    for (table, expected) in tables {
        assert_eq!(by_default(table), expected, "{table}");
    }
}

#[test]
fn pitfall_23_an_unknown_type_never_passes_for_the_wanted_version() {
    for unknown in ["type-unknown", "type-9"] {
        let table = format!("0 {unknown} 10.1.2.3\n1 v1 10.1.2.3\n2 v2 fe80::1");
        assert_eq!(by_default(&table), Some(2));
        for version in ["1", "2"] {
            let policy = Policy {
                roce_version: Wish::Require(version.parse().unwrap()),
                ..Policy::default()
            };
            let alone = format!("0 {unknown} 10.1.2.3");
            assert_eq!(index(&alone, &policy), None, "{unknown} {version}");
        }
    }
}

#[test]
fn pitfall_24_entry_0_and_the_first_candidate_are_judged_like_any_other() {
    for bad in [
        "0 v2 ff02::1",
        "0 v2 fe80::",
        "0 v2 ::",
        "0 v2 224.0.0.1",
        "0 v2 fe80::1",
        "0 v1 10.1.2.3",
    ] {
        let table = format!("{bad} on eth2\n4 v2 10.1.2.3 on eth2");
        assert_eq!(by_default(&table), Some(4), "{bad}");
        let reversed = format!("4 v2 10.1.2.3 on eth2\n{bad} on eth2");
        assert_eq!(by_default(&reversed), Some(4), "{bad}");
    }
}

#[test]
fn pitfall_25_a_valid_entry_outside_the_range_never_beats_one_inside() {
    let policy = Policy {
        ranges: "10.2.0.0/16".parse().unwrap(),
        ..Policy::default()
    };
    let table = "0 v2 10.1.2.3\n1 v2 10.3.2.3\n6 v2 10.2.2.3\n7 v2 10.2.2.4";
    assert_eq!(index(table, &policy), Some(6));
    // And a range without an address is an error that lists what there is.
    let table = entries("0 v2 10.1.2.3 on eth2\n1 v2 fe80::1 on eth2 (down)");
    let error = select(&table, LinkLayer::Ethernet, &policy).unwrap_err();
    assert_eq!(error.cause, Cause::Ranges(policy.ranges.clone()));
    assert_eq!(error.candidates().count(), 1);
    let text = error.to_string();
    for part in ["`ranges`=10.2.0.0/16", "0: RoCEv2 10.1.2.3 on eth2"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn pitfall_26_a_bad_slot_is_skipped_alone() {
    let table = "0: unreadable: Invalid argument\n1 v2 10.1.2.3: unreadable: not here\n\
                 2 v2 10.1.2.4";
    assert_eq!(by_default(table), Some(2));
    let selection = select(&entries(table), LinkLayer::Ethernet, &Policy::default()).unwrap();
    assert_eq!(selection.verdicts[0].kind, VerdictKind::Unreadable);
    assert_eq!(selection.verdicts[1].kind, VerdictKind::Unreadable);
}

#[test]
fn pitfall_27_an_index_is_checked_against_the_table() {
    let table = entries("3 v2 10.1.2.3 on eth2\n4 v2 ff02::1 on eth2\n5: unreadable: no");
    for (wanted, cause) in [
        (77, Cause::NoSuchIndex(77)),
        (0, Cause::NoSuchIndex(0)),
        (4, Cause::UnusableIndex(4)),
        (5, Cause::UnusableIndex(5)),
    ] {
        let policy = Policy {
            index: Some(wanted),
            ..Policy::default()
        };
        let error = select(&table, LinkLayer::Ethernet, &policy).unwrap_err();
        assert_eq!(error.cause, cause);
        let text = error.to_string();
        assert!(
            text.contains("`index`") && text.contains("10.1.2.3"),
            "{text}"
        );
        let empty = select(&[], LinkLayer::Ethernet, &policy).unwrap_err();
        assert_eq!(empty.cause, Cause::NoSuchIndex(wanted));
    }
    // One beyond the table falls back to the own.
    let table = entries("0 IB fe80::1\n1 IB fec0:0:7:1::1");
    for (routable, chosen) in [(None, 0), (Some(200), 0), (Some(1), 1)] {
        let policy = Policy {
            flid_index: routable,
            ..Policy::default()
        };
        let selection = select(&table, LinkLayer::InfiniBand, &policy).unwrap();
        assert_eq!(selection.entry.index, chosen, "{routable:?}");
    }
}

#[test]
fn pitfall_29_connections_at_the_same_time_do_not_share_what_they_ask_for() {
    let table = entries("1 v2 10.1.2.3\n2 v2 10.2.2.3\n3 v2 10.3.2.3\n4 v2 2001:db8::4");
    let ranges = ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "2001:db8::/32"];
    std::thread::scope(|scope| {
        for (range, expected) in ranges.into_iter().zip(1..) {
            let table = &table;
            scope.spawn(move || {
                for _ in 0..500 {
                    let policy = Policy {
                        ranges: range.parse().unwrap(),
                        ..Policy::default()
                    };
                    let selection = select(table, LinkLayer::Ethernet, &policy).unwrap();
                    assert_eq!(selection.entry.index, expected);
                }
            });
        }
    });
}

#[test]
fn pitfall_30_mapped_addresses_of_no_host_are_no_ipv4() {
    for odd in [
        "0.0.0.0",
        "224.0.0.1",
        "239.1.1.1",
        "255.255.255.255",
        "ff0e::ffff:a01:203",
    ] {
        assert_eq!(
            by_default(&format!("0 v2 {odd}\n1 v1 fe80::1")),
            Some(1),
            "{odd}"
        );
    }
}

#[test]
fn pitfall_31_the_flid_and_the_subnet_are_different_bits_of_the_prefix() {
    // Routers need the FLID (bytes 4 and 5); the 16 bits after it tell nothing about routing, and
    // two prefixes that differ elsewhere are different subnets.
    let table = entries("0 IB fe80::1\n1 IB fec0:0:0:7::1");
    assert_eq!(flid(&table[1].gid), 0);
    let selection = select(&table, LinkLayer::InfiniBand, &Policy::default()).unwrap();
    assert_eq!(selection.entry.index, 0);
    let others = entries("0 IB fec0:0:1:7::1\n1 IB fec0:0:2:7::1");
    assert_ne!(others[0].gid.subnet_prefix(), others[1].gid.subnet_prefix());
    assert_ne!(flid(&others[0].gid), flid(&others[1].gid));
}

#[test]
fn pitfall_33_chosen_by_kind_and_link_layer_not_by_position_and_lid() {
    // Neither index 0 nor the LID (which is not even told) decides. The same table on both links:
    let table = entries("0 v1 fe80::1\n3 v2 10.1.2.3");
    let ethernet = select(&table, LinkLayer::Ethernet, &Policy::default()).unwrap();
    assert_eq!(ethernet.entry.index, 3);
    for link_layer in [LinkLayer::InfiniBand, LinkLayer::Unspecified] {
        let selection = select(&table, link_layer, &Policy::default()).unwrap();
        assert_eq!(selection.entry.index, 0);
    }
    // An entry of InfiniBand that cannot be read does not end it.
    let table = entries("0: unreadable: no\n1 IB fe80::2");
    let selection = select(&table, LinkLayer::InfiniBand, &Policy::default()).unwrap();
    assert_eq!(selection.entry.index, 1);
}

#[test]
fn fifty_four_ports_each_get_their_own() {
    // A host with 54 ports has 54 tables, each with its address elsewhere; nothing is counted.
    let mut text = String::new();
    for port in 0..54 {
        let device = port / 2;
        writeln!(text, "mlx5_{device}:{} Ethernet", port % 2 + 1).unwrap();
        for slot in 0..port {
            writeln!(text, "{slot}: RoCEv2 fe80::{:x} on eth{port}", slot + 1).unwrap();
        }
        writeln!(text, "{}: RoCEv2 10.0.{port}.1 on eth{port}", port + 2).unwrap();
    }
    let tables = parse(&text).unwrap();
    assert_eq!(tables.len(), 54);
    for (port, table) in tables.iter().enumerate() {
        let selection = select(&table.entries, table.link_layer, &Policy::default()).unwrap();
        assert_eq!(selection.entry.index as usize, port + 2);
        assert_eq!(selection.entry.gid.0[14] as usize, port);
    }
}

#[test]
fn a_table_of_256_makes_no_error_without_end() {
    let mut text = String::new();
    for slot in 0..256 {
        writeln!(
            text,
            "{slot}: RoCEv2 10.1.{}.{} on eth2",
            slot / 200,
            slot % 200 + 1
        )
        .unwrap();
    }
    let policy = Policy {
        ranges: "10.2.0.0/16".parse().unwrap(),
        ..Policy::default()
    };
    let error = select(&entries(&text), LinkLayer::Ethernet, &policy).unwrap_err();
    assert_eq!(error.verdicts.len(), 256);
    let text = error.to_string();
    assert!(text.ends_with("; and 224 more"), "{text}");
    assert_eq!(text.matches("on eth2").count(), 32);
}
