//! Names of settings in the log: `ibnet` speaks of fields of [`Config`], and users of NCCL know
//! variables.

use ibnet::Config;

/// `text` with variables in place of the fields that they set: for `` `retry_count` ``,
/// `NCCL_IB_RETRY_CNT`. `ibnet_gid` speaks of the fields of its own policy.
pub(super) fn name_variables(text: &str) -> String {
    let mut named = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('`') {
        named.push_str(before);
        let (field, behind) = after.split_once('`').unwrap_or(("", ""));
        let is_meant = |other: &str| {
            let of_gid = other.strip_prefix("gid").and_then(|rest| rest.get(1..));
            other == field || of_gid == Some(field)
        };
        let set_it = Config::variables().filter(|(_, other)| is_meant(other));
        let variables: Vec<_> = set_it.map(|(variable, _)| variable).collect();
        if variables.is_empty() {
            named.push('`');
            rest = after;
        } else {
            named.push_str(&variables.join(" or "));
            rest = behind;
        }
    }
    named + rest
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn fields_are_named_by_their_variables() {
        for (text, named) in [
            ("no name", "no name"),
            (
                "7 retries, `retry_count`, and `timeouts`",
                "7 retries, NCCL_IB_RETRY_CNT, and `timeouts`",
            ),
            ("`comm_id`=x", "NCCL_COMM_ID=x"),
            ("`partition`", "NCCL_IB_PKEY_VALUE or NCCL_IB_PKEY"),
            ("`gid.ranges`", "NCCL_IB_ADDR_RANGE"),
            (
                "`family`, `index`",
                "NCCL_IB_ADDR_FAMILY, NCCL_IB_GID_INDEX",
            ),
            ("a`hca`hca`", "aNCCL_IB_HCAhca`"),
            ("`x`ports`", "`xIBNET_PORT_RANGE"),
            ("``ports", "``ports"),
        ] {
            assert_eq!(name_variables(text), named);
        }
    }

    #[test]
    fn every_setting_is_on_the_manual_page() {
        let page = include_str!("../../../../docs/plugin.md");
        let variables = Config::variables().map(|(variable, _)| variable);
        let missing: Vec<_> = variables
            .filter(|name| !page.contains(&format!("\n| `{name}` |")))
            .collect();
        assert_eq!(missing, [""; 0]);
    }
}
