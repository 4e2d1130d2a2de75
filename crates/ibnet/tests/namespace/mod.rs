//! Hosts as tests need them: network namespaces, each with interfaces of its own. They take no root and no
//! real device. The tests of the plugin use them, too.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// A host. Its interfaces are in the order in which they are added, behind `lo`.
pub(crate) struct Host {
    commands: String,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self {
            commands: "ip link set lo up\n".to_owned(),
        }
    }

    /// Adds an interface with something at its other end.
    pub(crate) fn plugged(self, name: &str, address: &str) -> Self {
        let far = self.far_end();
        // The kernel notices the carrier a moment later.
        self.unplugged(name, address).set_up(&format!(
            "ip link set {far} up
             timeout 10 sh -c \"until ip link show {name} | grep -q 'state UP'; do sleep 0.01; done\""
        ))
    }

    /// Adds an interface that is up, but has no carrier. It has no address but the given one.
    pub(crate) fn unplugged(self, name: &str, address: &str) -> Self {
        let far = self.far_end();
        // An IPv6 address can be used at once only if no duplicate is looked for first.
        let nodad = if address.contains(':') { "nodad" } else { "" };
        self.set_up(&format!(
            "ip link add {name} type veth peer name {far}
             ip link set {name} addrgenmode none
             ip link set {far} addrgenmode none
             ip addr add {address} dev {name} {nodad}
             ip link set {name} up"
        ))
    }

    /// Adds a command of the shell.
    pub(crate) fn set_up(mut self, command: &str) -> Self {
        self.commands += command;
        self.commands += "\n";
        self
    }

    fn far_end(&self) -> String {
        format!("far{}", self.commands.matches("ip link add").count())
    }

    /// A command that runs `program` there. None on a machine without network namespaces, which it
    /// says loudly.
    pub(crate) fn command(&self, program: &Path) -> Option<Command> {
        match &*NAMESPACES {
            Ok(options) => Some(command(
                options,
                &format!("{}exec \"$@\"", self.commands),
                program,
            )),
            Err(why) => {
                // Not by `eprintln`, which the harness keeps to itself.
                let text = format!("NOT TESTED, for want of network namespaces:\n{why}\n");
                std::io::stderr().write_all(text.as_bytes()).unwrap();
                None
            }
        }
    }
}

fn command(options: &str, script: &str, program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command
        .args([options, "sh", "-ec", script, "sh"])
        .arg(program);
    command
}

/// How `unshare` makes a network namespace here: with a user namespace, or as root without one, which
/// containers may forbid. Otherwise why not.
static NAMESPACES: LazyLock<Result<&str, String>> = LazyLock::new(|| {
    let host = Host::new().plugged("eth0", "10.1.2.3/24");
    let mut why = String::new();
    for options in ["-Urn", "-n"] {
        match command(options, &host.commands, Path::new("")).output() {
            Ok(output) if output.status.success() => return Ok(options),
            Ok(output) => why += &String::from_utf8_lossy(&output.stderr),
            Err(error) => why += &format!("unshare: {error}\n"),
        }
    }
    Err(why)
});
