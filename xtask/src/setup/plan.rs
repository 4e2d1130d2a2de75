//! What to do about missing things: a decision without any effect.

use super::needs::{Need, describe};

/// What matters of the machine.
pub(super) struct Platform {
    /// Debian, Ubuntu, or a distribution made from them.
    pub(super) has_apt: bool,
    /// This process may install packages.
    pub(super) is_root: bool,
}

/// What to do.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    /// All is there.
    Nothing,
    /// Install these Debian packages.
    Install(Vec<&'static str>),
    /// Stop, and tell the person this.
    Ask(String),
}

/// Decides.
pub(super) fn make(platform: &Platform, missing: &[&Need]) -> Plan {
    if missing.is_empty() {
        return Plan::Nothing;
    }
    let packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    if !platform.has_apt {
        return Plan::Ask(format!(
            "this is neither Debian nor Ubuntu, so install the equivalents of these yourself \
             (Debian's package, what for, and what is looked for):\n{}",
            describe(missing)
        ));
    }
    if !platform.is_root {
        return Plan::Ask(format!(
            "installing packages needs root; run this line, then try again:\n\
             sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends {}'",
            packages.join(" ")
        ));
    }
    Plan::Install(packages)
}

/// Whether an `/etc/os-release` names Debian, Ubuntu, or a distribution like them.
pub(super) fn is_debian_like(os_release: &str) -> bool {
    os_release
        .lines()
        .filter_map(|line| {
            line.strip_prefix("ID=")
                .or_else(|| line.strip_prefix("ID_LIKE="))
        })
        .flat_map(|names| names.trim().trim_matches(['"', '\'']).split_whitespace())
        .any(|name| matches!(name, "debian" | "ubuntu"))
}

#[cfg(test)]
mod tests {
    use super::super::needs::sample;
    use super::*;

    #[test]
    fn nothing_missing_asks_nothing_of_anybody() {
        for (has_apt, is_root) in [(true, true), (true, false), (false, true), (false, false)] {
            assert_eq!(make(&Platform { has_apt, is_root }, &[]), Plan::Nothing);
        }
    }

    #[test]
    fn root_on_debian_installs() {
        let needs = [sample("cmake"), sample("cpio")];
        let plan = make(
            &Platform {
                has_apt: true,
                is_root: true,
            },
            &needs,
        );
        assert_eq!(plan, Plan::Install(vec!["cmake", "cpio"]));
    }

    #[test]
    fn others_on_debian_get_one_line_to_run() {
        let needs = [sample("cmake"), sample("cpio")];
        let Plan::Ask(text) = make(
            &Platform {
                has_apt: true,
                is_root: false,
            },
            &needs,
        ) else {
            panic!("no text");
        };
        let line = text.lines().last().unwrap_or_default();
        assert!(
            line.starts_with("sudo ") && line.contains("apt-get update"),
            "{line}"
        );
        assert!(
            line.ends_with("--no-install-recommends cmake cpio'"),
            "{line}"
        );
    }

    #[test]
    fn other_distributions_get_the_list() {
        let needs = [sample("cmake"), sample("libibverbs-dev")];
        let Plan::Ask(text) = make(
            &Platform {
                has_apt: false,
                is_root: true,
            },
            &needs,
        ) else {
            panic!("no text");
        };
        assert!(
            text.contains("programs cmake") && text.contains("infiniband/verbs.h"),
            "{text}"
        );
    }

    #[test]
    fn distributions_are_recognised() {
        assert!(is_debian_like(
            "NAME=\"Debian GNU/Linux\"\nID=debian\nVERSION_ID=\"12\"\n"
        ));
        assert!(is_debian_like("ID=ubuntu\nID_LIKE=debian\n"));
        assert!(is_debian_like("ID=pop\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!is_debian_like(
            "ID=fedora\nHOME_URL=\"https://debian.example\"\n"
        ));
        assert!(!is_debian_like(
            "ID_LIKE=\"rhel centos\"\nVARIANT_ID=debian\n"
        ));
        assert!(!is_debian_like(""));
    }
}
