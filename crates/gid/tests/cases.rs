//! Tables that people sent, in whatever form they had them, each with the right answer.
#![allow(clippy::unwrap_used)]

#[path = "../examples/verdicts/settings.rs"]
mod settings;
#[path = "../examples/verdicts/text/mod.rs"]
mod text;

use ibnet_gid::{Because, VerdictKind, select};
use ibnet_verbs::GidType;
use settings::Settings;

/// What is chosen for each port, and what is as good.
fn answers(text: &str, given: &[&str]) -> Vec<(String, Option<u32>, Vec<u32>)> {
    let mut settings = Settings::default();
    for setting in given {
        settings.set(setting).unwrap();
    }
    let tables = text::parse(text).unwrap();
    let answer = |table: &text::PortTable| {
        let policy = settings.policy(table.port.as_ref());
        let selection = select(&table.entries, table.link_layer, &policy).ok();
        let ties = selection.iter().flat_map(|selection| selection.ties());
        let ties = ties.map(|entry| entry.index).collect();
        let index = selection.as_ref().map(|selection| selection.entry.index);
        (table.title(), index, ties)
    };
    tables.iter().map(answer).collect()
}

/// One port without a tie.
fn answer(text: &str, given: &[&str]) -> (String, Option<u32>) {
    let mut answers = answers(text, given);
    assert_eq!(answers.len(), 1);
    let (title, index, ties) = answers.remove(0);
    assert_eq!(ties, [0; 0]);
    (title, index)
}

#[test]
fn a_port_of_infiniband_has_its_own_gid_whatever_is_set_for_roce() {
    let text = include_str!("cases/01-ib-port-shown-as-v1.txt");
    for given in [
        &[][..],
        &["NCCL_IB_ROCE_VERSION_NUM=2"],
        &["NCCL_IB_ADDR_FAMILY=AF_INET"],
        &["NCCL_IB_ADDR_RANGE=10.0.0.0/8"],
    ] {
        let expected = ("mlx5_0:1 InfiniBand".to_owned(), Some(0));
        assert_eq!(answer(text, given), expected, "{given:?}");
    }
    // An IPv4 address, an interface or version 2 is that of RoCE.
    for entry in ["::ffff:10.0.0.1 v1", "fe80::1 v1 eth2", "fe80::1 v2"] {
        let (title, _) = answer(&format!("mlx5_0 1 0 {entry}"), &[]);
        assert_eq!(title, "mlx5_0:1 Ethernet", "{entry}");
    }
}

#[test]
fn an_address_that_the_host_gave_itself_comes_after_what_is_routed() {
    let text = include_str!("cases/03-autoconf-169-254-and-global-v6.txt");
    assert_eq!(answer(text, &[]).1, Some(5));
    assert_eq!(answer(text, &["NCCL_IB_ADDR_FAMILY=AF_INET"]).1, Some(3));
}

#[test]
fn tables_of_ibv_devinfo_are_read() {
    let text = include_str!("cases/05-ibv_devinfo-table.txt");
    let expected = ("bnxt_re0:1 Ethernet".to_owned(), Some(3));
    assert_eq!(answer(text, &[]), expected);
    // Several devices and ports, InfiniBand among them, and a table of another form after it.
    let text = "hca_id: mlx5_0
        \ttransport:\t\t\tInfiniBand (0)
        \tphys_port_cnt:\t\t\t2
        \tdevice_cap_flags:\t\t0x25361c36
        \t\t\t\t\tBAD_PKEY_CNTR
        \t\tport:\t1
        \t\t\tstate:\t\t\tPORT_ACTIVE (4)
        \t\t\tlink_layer:\t\tInfiniBand
        \t\t\tGID[  0]:\t\tfe80:0000:0000:0000:0202:c903:0034:5671
        \t\tport:\t2
        \t\t\tlink_layer:\t\tEthernet
        \t\t\tGID[  0]:\t\tfe80:0000:0000:0000:0202:c9ff:fe34:5672, RoCE v1
        \t\t\tGID[  1]:\t\tfe80::202:c9ff:fe34:5672, RoCE v2

        hca_id:\tmlx5_1
        \t\tport:\t1
        \t\t\tlink_layer:\t\tEthernet
        \t\t\tGID[ 12]:\t\t::ffff:10.1.2.3, RoCE v2
        mlx5_2:1 Ethernet
        4: RoCEv2 10.1.2.4 on eth2";
    let indices: Vec<_> = answers(text, &[])
        .into_iter()
        .map(|(title, index, _)| (title, index))
        .collect();
    assert_eq!(
        indices,
        [
            ("mlx5_0:1 InfiniBand".to_owned(), Some(0)),
            ("mlx5_0:2 Ethernet".to_owned(), Some(1)),
            ("mlx5_1:1 Ethernet".to_owned(), Some(12)),
            ("mlx5_2:1 Ethernet".to_owned(), Some(4)),
        ]
    );
    let types = text::parse(text).unwrap();
    let types = types.iter().map(|table| table.entries[0].gid_type);
    let [infiniband, v1, v2, _] = types.collect::<Vec<_>>()[..] else {
        panic!("four tables");
    };
    assert_eq!(
        [infiniband, v1, v2],
        [GidType::InfiniBand, GidType::RoceV1, GidType::RoceV2].map(Some)
    );
    let error = text::parse("hca_id: a\n port: 1\n GID[ 0]: 10.1.2").unwrap_err();
    assert_eq!((error.line, error.token.as_str()), (3, "10.1.2"));
}

#[test]
fn of_two_pods_both_are_possible() {
    let text = include_str!("cases/08-pods-net1.txt");
    let expected = ("mlx5_1:1 Ethernet".to_owned(), Some(5), vec![7]);
    assert_eq!(answers(text, &[]), [expected]);
    assert_eq!(
        answer(text, &["NCCL_IB_ADDR_RANGE=10.8.0.12/32"]).1,
        Some(7)
    );
}

#[test]
fn a_range_leaves_a_port_of_another_network_out() {
    let text = include_str!("cases/15-storage-rail-in-another-net.txt");
    let answers = answers(text, &["NCCL_IB_ADDR_RANGE=10.1.0.0/16"]);
    let indices: Vec<_> = answers.iter().map(|(_, index, _)| *index).collect();
    assert_eq!(indices, [Some(3), Some(3), None]);
}

#[test]
fn a_byte_order_mark_and_the_line_ends_of_windows_do_no_harm() {
    let text = include_str!("cases/19-byte-order-mark.txt");
    assert!(text.starts_with('\u{feff}'));
    let expected = ("rdma0:1 Ethernet".to_owned(), Some(1));
    assert_eq!(answer(text, &[]), expected);
    let windows = text.replace('\n', "\r\n");
    assert_eq!(answer(&windows, &[]), expected);
    // Right before the first line of the table, too.
    let joined = format!("\u{feff}{}", text.trim_start_matches(['\u{feff}', '\n']));
    assert_eq!(answer(&joined, &[]), expected);
}

#[test]
fn listings_of_sysfs_are_read() {
    let folder = "/sys/class/infiniband/mlx5_0/ports/1";
    let files = [
        ("gid_attrs/ndevs/0", "eth2.7"),
        ("gid_attrs/ndevs/1", "eth2"),
        ("gid_attrs/types/0", "RoCE v2"),
        ("gid_attrs/types/1", "RoCE v2"),
        ("gid_attrs/types/3", "IB/RoCE v1"),
        ("gids/0", "0000:0000:0000:0000:0000:ffff:0a07:0203"),
        ("gids/1", "0000:0000:0000:0000:0000:ffff:0a01:0203"),
        ("gids/2", "0000:0000:0000:0000:0000:0000:0000:0000"),
        ("gids/3", "0000:0000:0000:0000:0000:ffff:0a01:0204"),
        ("link_layer", "Ethernet"),
    ];
    let complaint = format!("grep: {folder}/gid_attrs/types/2: Invalid argument\n");
    let lines = |line: &dyn Fn(&str, &str) -> String| -> String {
        files
            .iter()
            .map(|(file, content)| line(file, content))
            .collect()
    };
    let grep = lines(&|file, content| format!("{folder}/{file}:{content}\n"));
    let head = lines(&|file, content| format!("==> {folder}/{file} <==\n{content}\n\n"));
    let linked = "/sys/devices/pci0000:40/0000:41:00.0/infiniband/mlx5_0/ports/1";
    let real = lines(&|file, content| format!("{linked}/{file}:{content}\n"));
    for text in [complaint + &grep, head, real] {
        let expected = ("mlx5_0:1 Ethernet".to_owned(), Some(1));
        assert_eq!(answer(&text, &[]), expected, "{text}");
        // The empty entry is none.
        assert_eq!(text::parse(&text).unwrap()[0].entries.len(), 3);
    }
    let relative = lines(&|file, content| format!("{file}:{content}\n"));
    assert_eq!(answer(&relative, &[]), ("Ethernet".to_owned(), Some(1)));

    let infiniband = "gids/0:fe80:0000:0000:0000:0a0b:0c03:0011:2233\ngid_attrs/types/0:IB/RoCE v1";
    assert_eq!(answer(infiniband, &[]), ("InfiniBand".to_owned(), Some(0)));
    let error = text::parse("/sys/class/infiniband/a/ports/1/gids/0:zzz").unwrap_err();
    assert_eq!(error.token, "zzz");
}

#[test]
fn an_interface_is_a_vlan_if_it_is_named_like_one() {
    let text = "mlx5_0:1 Ethernet\n0 v2 10.7.2.3 on eth2.7\n1 v2 10.1.2.3 on eth2";
    assert_eq!(answer(text, &[]).1, Some(1));
    let text = "mlx5_0 1 0 ::ffff:10.7.2.3 v2 ens1f0.4094\nmlx5_0 1 1 ::ffff:10.1.2.3 v2 ens1f0";
    assert_eq!(answer(text, &[]).1, Some(1));
    for other in ["eth2.x", "eth2.4095", "eth2.0", ".7", "eth2.", "eth27"] {
        let text = format!("0 v2 10.7.2.3 on {other}\n1 v2 10.1.2.3 on eth2");
        let tables = text::parse(&text).unwrap();
        let selection = select(
            &tables[0].entries,
            tables[0].link_layer,
            &Default::default(),
        );
        assert_eq!(selection.unwrap().entry.index, 0, "{other}");
    }
}

#[test]
fn what_is_asked_for_in_vain_is_told() {
    let mut settings = Settings::default();
    settings.set("NCCL_IB_ADDR_FAMILY=AF_INET6").unwrap();
    let tables = text::parse("mlx5_0:1 Ethernet\n3 v2 10.1.2.3 on eth2").unwrap();
    let policy = settings.policy(None);
    let selection = select(&tables[0].entries, tables[0].link_layer, &policy).unwrap();
    let kind = selection.verdicts[0].kind;
    assert!(
        matches!(kind, VerdictKind::Chosen(Because::Despite(_))),
        "{kind:?}"
    );
}
