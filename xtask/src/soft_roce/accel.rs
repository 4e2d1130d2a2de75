//! Emulation or KVM: a trial boot decides, once per kernel of the host, QEMU and kernel of the
//! guest.
//!
//! That `/dev/kvm` can be opened says little: on some hosts a guest then hangs before it prints
//! anything.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::Duration;

use crate::failure::{Context, Result, fail};
use crate::paths;
use crate::process::{capture, command};
use crate::progress::{Step, note};
use crate::stream::Limits;

use super::options::Accel;
use super::qemu::{Engine, Guest};

const DEVICE: &str = "/dev/kvm";

/// A working KVM boots the guest in two or three seconds.
const TRIAL: Duration = Duration::from_secs(10);

/// What to run the machine with. `guest_kernel` is the guest's version, `guest` one that uses KVM, for
/// a trial.
pub(super) fn engine(accel: Accel, guest_kernel: &str, guest: &Guest<'_>) -> Result<Engine> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE);
    match accel {
        Accel::Tcg => Ok(Engine::Emulation),
        Accel::Icount => Ok(Engine::Counting),
        Accel::Kvm => {
            device.context(|| format!("cannot open {DEVICE}"))?;
            Ok(Engine::Kvm)
        }
        Accel::Auto if device.is_ok() && tried(guest_kernel, guest)? => Ok(Engine::Kvm),
        Accel::Auto => Ok(Engine::Emulation),
    }
}

fn tried(guest_kernel: &str, guest: &Guest<'_>) -> Result<bool> {
    let file = paths::soft_roce().join("kvm-verdict");
    let key = key(guest_kernel)?;
    if let Some(verdict) = remembered(&file, &key) {
        return Ok(verdict);
    }
    let step = Step::begin(&format!("trying KVM (once; {} s at most)", TRIAL.as_secs()));
    let works = guest.probe(Limits {
        silence: None,
        total: Some(TRIAL),
    })?;
    step.done(if works {
        "KVM works"
    } else {
        "KVM does not work here; emulating instead"
    });
    fs::write(&file, format!("{key}\n{works}\n"))
        .context(|| format!("cannot write {}", file.display()))?;
    Ok(works)
}

/// What the verdict depends on, on one line.
fn key(guest_kernel: &str) -> Result<String> {
    let host = fs::read_to_string("/proc/sys/kernel/osrelease")
        .context(|| "cannot read the version of this host's kernel".to_owned())?;
    let qemu = capture(command("qemu-system-x86_64")?.arg("--version"))?;
    let Some(qemu) = qemu.lines().next() else {
        fail!("qemu-system-x86_64 --version prints nothing");
    };
    Ok(format!(
        "host {} / {qemu} / guest {guest_kernel}",
        host.trim()
    ))
}

fn remembered(file: &Path, key: &str) -> Option<bool> {
    let text = fs::read_to_string(file).ok()?;
    let verdict: bool = text.strip_prefix(key)?.trim().parse().ok()?;
    if !verdict {
        note("emulating, because KVM did not work when it was tried (`--accel kvm` insists on it)");
    }
    Some(verdict)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_verdict_holds_for_its_key_only() {
        let file = std::env::temp_dir().join(format!("xtask-verdict-{}", std::process::id()));
        assert_eq!(remembered(&file, "key"), None);
        fs::write(&file, "key\ntrue\n").unwrap();
        assert_eq!(remembered(&file, "key"), Some(true));
        assert_eq!(remembered(&file, "other key"), None);
        assert_eq!(remembered(&file, "ke"), None);
        fs::write(&file, "key\nfalse\n").unwrap();
        assert_eq!(remembered(&file, "key"), Some(false));
        fs::write(&file, "key\nperhaps\n").unwrap();
        assert_eq!(remembered(&file, "key"), None);
        fs::remove_file(file).unwrap();
    }
}
