//! Tables and settings as text: what is printed can be read, and no text makes a parser panic.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../examples/verdicts/text/mod.rs"]
mod text;

use ibnet_gid::{AddressRanges, Entry, Family, IndexRules, Netdevs, Policy, RoceVersion, select};
use ibnet_verbs::LinkLayer;

use common::{Random, table};
use text::{PortTable, parse};

#[test]
fn what_is_printed_can_be_read() {
    for seed in 0..4_000 {
        let random = &mut Random::new(seed);
        let entries = table(random);
        let of = |link_layer| PortTable {
            port: Some(("mlx5_0".to_owned(), 2)),
            link_layer,
            entries: entries.clone(),
        };
        for expected in [of(LinkLayer::Ethernet), of(LinkLayer::InfiniBand)] {
            let result = select(&entries, expected.link_layer, &Policy::default());
            let lines: Vec<_> = match &result {
                Ok(selection) => selection.to_string().lines().map(str::to_owned).collect(),
                Err(error) => error.verdicts.iter().map(ToString::to_string).collect(),
            };
            let text = format!("{}\n{}", expected.title(), lines.join("\n"));
            assert_eq!(parse(&text).unwrap(), [expected], "seed {seed}:\n{text}");
        }
    }
}

#[test]
fn tables_of_show_gids_are_read() {
    let tables = parse(include_str!("../examples/show_gids.txt")).unwrap();
    assert_eq!(tables.len(), 1);
    assert_eq!(tables[0].title(), "mlx5_0:1 Ethernet");
    let policy = Policy::default();
    let selection = select(&tables[0].entries, tables[0].link_layer, &policy).unwrap();
    let lines: Vec<_> = selection.verdicts.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines[0],
        "0: RoCEv1 fe80::e42:a1ff:fe12:3456 on ens1f0: older version"
    );
    // show_gids does not say that the interface is a VLAN, but its name does.
    assert_eq!(
        lines[3],
        "3: RoCEv2 10.100.2.3 on ens1f0.100 (vlan): on a VLAN"
    );
    assert_eq!(lines[5], "5: RoCEv2 10.1.2.3 on ens1f0: chosen");

    // Ports in turns.
    let tables = parse(
        "mlx5_1:1 InfiniBand
         mlx5_0 1 0 fe80:0000:0000:0000:0202:c9ff:fe34:5670 v2 ens3
         mlx5_1 1 0 fe80:0000:0000:0000:0202:c903:0034:5671 v1
         mlx5_0 1 1 fe80:0000:0000:0000:0202:c9ff:fe34:5672 v2 ens3",
    )
    .unwrap();
    let shape = |table: &PortTable| (table.title(), table.entries.len());
    assert_eq!(
        tables.iter().map(shape).collect::<Vec<_>>(),
        [
            ("mlx5_1:1 InfiniBand".to_owned(), 1),
            ("mlx5_0:1 Ethernet".to_owned(), 2)
        ]
    );
}

#[test]
fn a_port_can_be_taken_up_again() {
    let text =
        "a:1 Ethernet\n0 v2 10.0.0.1\nb:1 Ethernet\n0 v2 10.0.0.2\na:1 Ethernet\n1 v1 10.0.0.3";
    let tables = parse(text).unwrap();
    let lengths: Vec<_> = tables.iter().map(|table| table.entries.len()).collect();
    assert_eq!(lengths, [2, 1]);
}

#[test]
fn the_link_layer_is_guessed_from_the_types() {
    for (text, link_layer) in [
        ("0 IB fe80::1\n1 IB fe80::2", LinkLayer::InfiniBand),
        ("0 IB fe80::1\n1 v2 fe80::2", LinkLayer::Ethernet),
        ("0: unreadable: no\n1 IB fe80::2", LinkLayer::InfiniBand),
        ("0: unreadable: no", LinkLayer::Ethernet),
    ] {
        assert_eq!(parse(text).unwrap()[0].link_layer, link_layer, "{text}");
    }
    assert!(parse("# nothing\n\n").unwrap().is_empty());
}

#[test]
fn a_line_that_is_no_entry_is_named() {
    for (text, line, token) in [
        ("0 v2 10.1.2.3\n\n1 v3 10.1.2.3", 3, "v3"),
        ("0 v2 10.1.2", 1, "10.1.2"),
        ("0 v2", 1, ""),
        ("0", 1, ""),
        ("0x v2 10.1.2.3", 1, "0x"),
        ("99999999999 v2 10.1.2.3", 1, "99999999999"),
        ("0 v2 10.1.2.3 at eth2", 1, "at"),
        ("0 v2 10.1.2.3 on", 1, ""),
        ("0 v2 10.1.2.3 on a/b", 1, "a/b"),
        ("0 v2 10.1.2.3 on eth2 (wet)", 1, "wet"),
        ("0 v2 10.1.2.3 on eth2 (vlan", 1, "(vlan"),
        ("0 v2 10.1.2.3 on eth2 (vlan) more", 1, "more"),
        ("0 type-x 10.1.2.3", 1, "type-x"),
        ("mlx5_0:1 Token-Ring", 1, "Token-Ring"),
        ("mlx5_0:0 Ethernet", 1, "0"),
        ("mlx5_0 Ethernet", 1, "mlx5_0"),
        ("word", 1, "word"),
        ("mlx5_0 1 3 fe80::1 v2 eth2 more", 1, "more"),
        ("mlx5_0 1 3 fe80::1", 1, ""),
    ] {
        let error = parse(text).unwrap_err();
        assert_eq!((error.line, error.token.as_str()), (line, token), "{text}");
        assert!(error.to_string().contains("expected"), "{error}");
    }
}

/// Random text of pieces that parsers look for.
fn noise(random: &mut Random) -> String {
    const PIECES: &[&str] = &[
        "0",
        "1",
        "3",
        "-1",
        "255",
        "256",
        "99999999999999999999",
        "mlx5_0",
        ":",
        "=",
        ",",
        "/",
        " ",
        "\n",
        "\t",
        ".",
        "::",
        "10.1.2.3",
        "fe80::1",
        "::ffff:",
        "AF_INET",
        "AF_INET6",
        "6",
        "128",
        "129",
        "on",
        "on eth2",
        "(",
        ")",
        "(vlan, down)",
        "v1",
        "RoCEv2",
        "InfiniBand",
        "Ethernet",
        "unreadable:",
        "type-",
        "#",
        "DEV PORT INDEX",
        "---",
        "é",
        "\u{2028}",
        "\0",
        "%",
        "+",
        "\u{1f980}",
        "n_gids_found=",
        "mlx5_0:1 Ethernet\n",
        "0: RoCEv2 10.1.2.3:",
        "hca_id: mlx5_0\n",
        "port: 1\n",
        "link_layer: Ethernet\n",
        "GID[",
        "]: ",
        "/ports/1/gids/3:",
        "gid_attrs/types/3:",
        "gid_attrs/ndevs/",
        "==> gids/1 <==\n",
        "\u{feff}",
    ];
    let number = random.below(12);
    (0..number).map(|_| *random.pick(PIECES)).collect()
}

#[test]
fn no_text_makes_a_parser_panic() {
    let mut understood = [0; 7];
    for seed in 0..30_000 {
        let random = &mut Random::new(seed);
        let text = noise(random);
        let ranges = text.parse::<AddressRanges>();
        if let Ok(ranges) = &ranges {
            // What is understood means the same when it is printed and read again.
            assert_eq!(ranges.to_string().parse().as_ref(), Ok(ranges), "{text:?}");
        }
        if let Ok(netdevs) = text.parse::<Netdevs>() {
            assert_eq!(netdevs.to_string().parse(), Ok(netdevs), "{text:?}");
        }
        let outcomes = [
            ranges.is_ok(),
            text.parse::<IndexRules>().is_ok(),
            text.parse::<Netdevs>().is_ok(),
            text.parse::<Family>().is_ok(),
            text.parse::<RoceVersion>().is_ok(),
            parse(&text).is_ok(),
            parse(&format!("0: RoCEv2 {text}")).is_ok(),
        ];
        for (sum, outcome) in understood.iter_mut().zip(outcomes) {
            *sum += u32::from(outcome);
        }
    }
    // The noise reached behind the first check of each.
    assert!(
        understood.iter().all(|&number| number > 5),
        "{understood:?}"
    );
}

#[test]
fn small_settings_are_strict() {
    for (text, family) in [("AF_INET", Family::Ipv4), (" AF_INET6 ", Family::Ipv6)] {
        assert_eq!(text.parse(), Ok(family));
        assert_eq!(family.c_name(), text.trim());
    }
    for text in ["", "AF_INET4", "af_inet", "IPv4", "2"] {
        let error = text.parse::<Family>().unwrap_err();
        assert_eq!(
            (error.token.as_str(), error.expected.as_str()),
            (text, "AF_INET or AF_INET6")
        );
    }
    assert_eq!("1".parse(), Ok(RoceVersion::V1));
    assert_eq!("2".parse(), Ok(RoceVersion::V2));
    for text in ["", "0", "3", "v2", "-1", "02"] {
        assert_eq!(text.parse::<RoceVersion>().unwrap_err().token, text);
    }
}

#[test]
fn entries_tell_whether_a_table_changed() {
    // Pitfalls 7 and 32: who keeps a table must be able to see that it is another one now.
    let read = |text: &str| -> Vec<Entry> { parse(text).unwrap().remove(0).entries };
    let before = read("3 v2 10.1.2.3 on eth2");
    assert_eq!(before, read("3: RoCEv2 10.1.2.3 on eth2: chosen"));
    for after in [
        "5 v2 10.1.2.3 on eth2",
        "3 v1 10.1.2.3 on eth2",
        "3 v2 10.1.2.4 on eth2",
        "3 v2 10.1.2.3 on eth3",
        "3 v2 10.1.2.3 on eth2 (down)",
        "3 v2 10.1.2.3 on eth2 (vlan)",
        "3 v2 10.1.2.3 on eth2: unreadable: gone",
    ] {
        assert_ne!(before, read(after), "{after}");
    }
}
