//! Why a device cannot be opened, in one line: which device, what the system said, what is missing
//! and what to do.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ibnet_verbs::LockedMemory;
use nix::errno::Errno;

use crate::config::Config;

/// Opens the node of `device` and closes it again.
///
/// libibverbs does not tell why it cannot: where there is no `/dev/char`, as in containers, each
/// errno becomes ENOENT, after 5 s in which it waits for the node to appear (`open_cdev` of
/// rdma-core). A device whose node sysfs does not tell is left to it.
///
/// # Errors
/// The line to say.
pub(super) fn try_node(device: &str, config: &Config) -> Result<(), String> {
    let Some(name) = node_name(device, &config.sysfs) else {
        return Ok(());
    };
    let node = config.device_nodes.join(name);
    let opened = OpenOptions::new().read(true).write(true).open(&node);
    opened.map(drop).map_err(|error| {
        let doing = format!("opening {}", node.display());
        explain(device, &doing, error.raw_os_error(), &error, config)
    })
}

/// The line for `device`, for which `doing` failed with `error`, whose number is `errno`.
pub(super) fn explain(
    device: &str,
    doing: &str,
    errno: Option<i32>,
    error: &dyn std::error::Error,
    config: &Config,
) -> String {
    let Some(errno) = errno else {
        return format!("{device}: {doing} failed: {error}");
    };
    let node = Node::of(device, config);
    let errno = Errno::from_raw(errno);
    format!(
        "{device}: {doing} failed: {} ({errno:?}): {}",
        io::Error::from(errno),
        advice(errno, &node, LockedMemory::of_this_process().limit)
    )
}

/// The device node by which programs reach a device.
#[derive(Clone, Debug)]
struct Node {
    /// Where it is or should be; with `*` if sysfs does not tell its number.
    path: String,
    state: NodeState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeState {
    Missing,
    /// It is there, with these permissions.
    Mode(u32),
    /// Whether it is there cannot be told.
    Unknown,
}

impl Node {
    fn of(device: &str, config: &Config) -> Self {
        let folder = &config.device_nodes;
        let name = node_name(device, &config.sysfs);
        let path = folder.join(name.as_deref().unwrap_or("uverbs*"));
        // Without its number, all that can be told is whether there are nodes at all.
        let found = fs::metadata(if name.is_some() { &path } else { folder });
        let state = match found {
            Err(error) if error.kind() == io::ErrorKind::NotFound => NodeState::Missing,
            Ok(node) if name.is_some() => NodeState::Mode(node.permissions().mode() & 0o777),
            _ => NodeState::Unknown,
        };
        Self {
            path: path.display().to_string(),
            state,
        }
    }
}

/// The name of a device's node, such as `uverbs0`, by sysfs.
fn node_name(device: &str, sysfs: &Path) -> Option<String> {
    let nodes = fs::read_dir(sysfs.join("class/infiniband_verbs")).ok()?;
    nodes.flatten().find_map(|node| {
        let owner = fs::read_to_string(node.path().join("ibdev")).ok()?;
        (owner.trim() == device).then(|| node.file_name().to_string_lossy().into_owned())
    })
}

/// What is missing, and what to do about it.
fn advice(errno: Errno, node: &Node, locked_memory: Option<u64>) -> String {
    let path = &node.path;
    if node.state == NodeState::Missing {
        return format!(
            "{path} is missing; load the module ib_uverbs, or give the container its device nodes \
             (--device=/dev/infiniband)"
        );
    }
    match errno {
        Errno::EACCES | Errno::EPERM => match node.state {
            // Whoever may write to it and still is refused meets the device cgroup.
            NodeState::Mode(mode) if errno == Errno::EPERM || mode & 0o006 == 0o006 => format!(
                "{path} is there (mode {mode:03o}), but its use is forbidden, as the device cgroup \
                 of a container does; allow it (--device={path})"
            ),
            NodeState::Mode(mode) => format!(
                "no permission for {path} (mode {mode:03o}); join the group that owns it, or let \
                 udev give it mode 666"
            ),
            _ => format!("no permission for {path}; see its owner and mode"),
        },
        Errno::ENOENT => format!("{path} or its driver is missing; load the device's modules"),
        Errno::ENODEV | Errno::ENXIO => format!(
            "the device behind {path} is gone or its driver is being reset; see the kernel's log"
        ),
        Errno::ENOMEM | Errno::EAGAIN => format!(
            "no memory for the device's context: {}the limits of the cgroup (rdma.max: hca_handle, \
             hca_object) are used up",
            match locked_memory {
                Some(bytes) => format!(
                    "the limit of locked memory is {} KiB (ulimit -l unlimited lifts it); or ",
                    bytes / 1024
                ),
                None => String::new(),
            }
        ),
        Errno::EMFILE | Errno::ENFILE => {
            "too many open files; raise the limit (ulimit -n)".to_owned()
        }
        Errno::EBUSY => format!("{path} is in use by somebody who wants it alone"),
        Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EPROTONOSUPPORT => {
            "the kernel's driver and its library (rdma-core) do not fit each other; update both"
                .to_owned()
        }
        _ => format!("no usual answer for {path}; see the kernel's log"),
    }
}

/// The devices that sysfs shows, that are wanted, and that the libibverbs of the file `library` does
/// not list, each with what it lacks.
pub(super) fn unlisted(listed: &[&str], library: &str, config: &Config) -> Vec<String> {
    let Ok(shown) = fs::read_dir(config.sysfs.join("class/infiniband")) else {
        return Vec::new();
    };
    let mut names: Vec<String> = shown
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !listed.contains(&name.as_str()) && config.hca.admits_device(name))
        .collect();
    names.sort();
    names
        .iter()
        .map(|name| {
            let node = Node::of(name, config);
            let lacks = match node.state {
                NodeState::Missing => advice(Errno::ENOENT, &node, None),
                _ => "it has no provider for it, or one of another release of rdma-core; install \
                      the provider (package ibverbs-providers or rdma-core) of the same release as \
                      the library"
                    .to_owned(),
            };
            format!("{name}: the kernel has it, {library} does not list it: {lacks}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn node(state: NodeState) -> Node {
        Node {
            path: "/dev/infiniband/uverbs3".to_owned(),
            state,
        }
    }

    #[test]
    fn every_usual_cause_has_its_remedy() {
        use NodeState::{Missing, Mode};
        let cases = [
            (
                Errno::ENOENT,
                Missing,
                "uverbs3 is missing; load the module ib_uverbs",
            ),
            (Errno::EACCES, Missing, "--device=/dev/infiniband"),
            (
                Errno::EACCES,
                Mode(0o600),
                "no permission for /dev/infiniband/uverbs3 (mode 600)",
            ),
            (Errno::EACCES, Mode(0o666), "device cgroup"),
            (
                Errno::EPERM,
                Mode(0o666),
                "--device=/dev/infiniband/uverbs3",
            ),
            (Errno::ENODEV, Mode(0o666), "see the kernel's log"),
            (
                Errno::ENOMEM,
                Mode(0o666),
                "locked memory is 64 KiB (ulimit -l unlimited",
            ),
            (Errno::EAGAIN, Mode(0o666), "rdma.max"),
            (Errno::EMFILE, Mode(0o666), "ulimit -n"),
            (Errno::EOPNOTSUPP, Mode(0o666), "rdma-core"),
        ];
        for (errno, state, says) in cases {
            let text = advice(errno, &node(state), Some(64 << 10));
            assert!(text.contains(says), "{errno:?}: {text}");
            assert!(!text.contains('\n'));
        }
        let text = advice(Errno::ENOMEM, &node(Mode(0o666)), None);
        assert!(
            text.contains("rdma.max") && !text.contains("ulimit"),
            "{text}"
        );
    }

    #[test]
    fn the_node_is_found_by_sysfs() {
        let root = crate::device::test_folder::TestFolder::new();
        for (name, owner) in [("uverbs0", "mlx5_0"), ("uverbs3", "mlx5_1")] {
            root.write(&format!("class/infiniband_verbs/{name}/ibdev"), owner);
            root.write(&format!("class/infiniband/{owner}/node_type"), "1: CA");
        }
        root.write("dev/uverbs3", "");
        assert_eq!(node_name("mlx5_1", root.path()).as_deref(), Some("uverbs3"));
        let library = "/opt/rdma/lib/libibverbs.so.1";
        let mut config = Config {
            sysfs: root.path().to_owned(),
            device_nodes: root.path().join("dev"),
            ..Config::default()
        };
        assert_eq!(Node::of("mlx5_0", &config).state, NodeState::Missing);
        assert!(matches!(
            Node::of("mlx5_1", &config).state,
            NodeState::Mode(_)
        ));
        let unknown = Node::of("mlx5_9", &config);
        assert_eq!(unknown.state, NodeState::Unknown);
        assert!(unknown.path.ends_with("uverbs*"));
        let without_nodes = config.clone().device_nodes("/nonexistent".into());
        let gone = Node::of("mlx5_9", &without_nodes);
        assert_eq!(gone.state, NodeState::Missing);
        let lines = unlisted(&[], library, &config);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("mlx5_0") && lines[0].contains("uverbs0 is missing"));
        for part in ["mlx5_1", library, "provider", "same release"] {
            assert!(lines[1].contains(part), "{lines:?}");
        }
        assert!(unlisted(&["mlx5_0", "mlx5_1"], library, &config).is_empty());
        // What is not wanted is not missed.
        for (filter, missed) in [
            ("mlx5_0", 0),
            ("^mlx5_0:1", 0),
            ("^mlx5_1", 0),
            ("mlx5_1:2", 1),
        ] {
            config.hca = filter.parse::<crate::HcaFilter>().unwrap();
            let lines = unlisted(&[], library, &config);
            assert!(
                lines[0].contains(&format!("mlx5_{missed}: ")),
                "{filter}: {lines:?}"
            );
        }
        config.sysfs = "/nonexistent".into();
        assert!(unlisted(&[], library, &config).is_empty());
    }
}
