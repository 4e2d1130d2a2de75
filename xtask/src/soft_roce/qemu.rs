//! One boot of the virtual machine: QEMU's command line, and what the guest reports.

use std::fmt;
use std::fs::{self, File};
use std::io::{IsTerminal, Write, sink, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use crate::console::Console;
use crate::failure::{Context, Result, fail};
use crate::paths;
use crate::process::{command, find_program};
use crate::progress::Step;
use crate::stream::{self, End, Limits};

/// What is to be booted.
pub(super) struct Guest<'a> {
    /// The kernel's image.
    pub(super) image: &'a Path,
    /// The packed files.
    pub(super) initramfs: &'a Path,
    /// What runs it.
    pub(super) engine: Engine,
    /// Memory in MiB.
    pub(super) memory: u32,
    /// Where the control file goes.
    pub(super) folder: &'a Path,
    /// Do not show what the job prints.
    pub(super) quiet: bool,
}

/// What runs a guest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Engine {
    Kvm,
    Emulation,
    /// Emulation of one processor whose clocks advance by a nanosecond with each instruction, and jump
    /// to the next timer when there is nothing to do. What the guest measures is the same every time,
    /// whatever else the host does.
    Counting,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "KVM",
            Self::Emulation => "emulation",
            Self::Counting => "emulation that counts instructions",
        })
    }
}

/// What a guest is booted for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Purpose {
    /// The job in its files, whose output is shown on a terminal or goes elsewhere.
    Job {
        /// On a terminal.
        on_terminal: bool,
    },
    /// An interactive shell.
    Shell,
    /// To show that it boots.
    Probe,
}

impl Guest<'_> {
    /// Boots, runs the job, and returns its exit status. Its output is shown, and goes to `on_line`
    /// line by line.
    pub(super) fn run_job(&self, limits: Limits, on_line: &mut dyn FnMut(&str)) -> Result<u8> {
        let log = console_log()?;
        let (file, step) = (create(&log)?, Step::begin("booting the machine"));
        let ready = || step.done("the machine is ready");
        let output: Box<dyn Write> = if self.quiet {
            Box::new(sink())
        } else {
            Box::new(stdout())
        };
        let mut console = Console::of_guest(output, file, ready, on_line);
        let mut qemu = self.qemu(Purpose::Job {
            on_terminal: !self.quiet && stdout().is_terminal(),
        })?;
        let end = stream::run(qemu.stdin(Stdio::null()), limits, &mut |piece| {
            console.feed(piece)
        })?;
        console.finish();
        let verdict = judge(
            &end,
            self.status(),
            console.has_panicked(),
            console.is_ready(),
        );
        match verdict {
            Ok(status) => {
                step.done(&format!("the job has ended with status {status}"));
                Ok(status)
            }
            Err(reason) => fail!(
                "{reason}; the end of its console:\n{}(all of it: {})",
                console.tail(),
                log.display()
            ),
        }
    }

    /// Boots into a shell on this terminal, and returns the shell's exit status.
    pub(super) fn run_shell(&self, limits: Limits) -> Result<u8> {
        if !stdin().is_terminal() {
            fail!("`--shell` needs a terminal; `--exec CMD` runs a command without one");
        }
        let log = console_log()?;
        drop(create(&log)?);
        let step = Step::begin("booting the machine (Ctrl-A X ends it in any state)");
        let end = stream::wait(&mut self.qemu(Purpose::Shell)?, limits.total)?;
        match judge(&end, self.status(), false, true) {
            Ok(status) => {
                step.done(&format!("the shell has ended with status {status}"));
                Ok(status)
            }
            Err(reason) => fail!("{reason}; its console: {}", log.display()),
        }
    }

    /// Whether the machine boots within the limits. Shows nothing.
    pub(super) fn probe(&self, limits: Limits) -> Result<bool> {
        let mut qemu = self.qemu(Purpose::Probe)?;
        // What QEMU complains about is an answer here, not an error.
        qemu.stdin(Stdio::null()).stderr(Stdio::null());
        let end = stream::run(&mut qemu, limits, &mut |_| Ok(()))?;
        Ok(matches!(end, End::Exited(_)) && self.status() == Some(0))
    }

    fn control(&self) -> PathBuf {
        self.folder.join("control")
    }

    /// The exit status that the guest has reported.
    fn status(&self) -> Option<u8> {
        parse_control(&fs::read_to_string(self.control()).unwrap_or_default())
    }

    fn qemu(&self, purpose: Purpose) -> Result<Command> {
        // Not there before the first boot.
        let _ = fs::remove_file(self.control());
        let mut qemu = dying_with_us(command("qemu-system-x86_64")?);
        let log = escape(&console_log()?);
        let console = match purpose {
            Purpose::Shell => format!("stdio,id=console,mux=on,signal=off,logfile={log}"),
            Purpose::Job { .. } | Purpose::Probe => "stdio,id=console".to_owned(),
        };
        let control = format!("file,id=control,path={}", escape(&self.control()));
        qemu.stdin(Stdio::inherit());
        qemu.args([
            "-machine",
            "q35",
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
        ]);
        qemu.args(["-display", "none", "-vga", "none", "-nic", "none"]);
        match self.engine {
            Engine::Kvm => qemu.args(["-accel", "kvm", "-cpu", "host"]),
            Engine::Emulation => qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max"]),
            Engine::Counting => qemu.args(COUNTING),
        };
        let processors = match self.engine {
            Engine::Counting => 1,
            Engine::Kvm | Engine::Emulation => processors(),
        };
        qemu.arg("-smp").arg(processors.to_string());
        qemu.arg("-m").arg(self.memory.to_string());
        qemu.arg("-kernel")
            .arg(self.image)
            .arg("-initrd")
            .arg(self.initramfs);
        qemu.arg("-append")
            .arg(kernel_parameters(purpose, self.engine));
        qemu.arg("-chardev")
            .arg(console)
            .args(["-serial", "chardev:console"]);
        qemu.arg("-chardev")
            .arg(control)
            .args(["-serial", "chardev:control"]);
        Ok(qemu)
    }
}

/// Where the console of the last run is kept.
fn console_log() -> Result<PathBuf> {
    let folder = paths::soft_roce();
    paths::create_folder(&folder)?;
    Ok(folder.join("console.log"))
}

/// A new file in place of an old one; a run that still writes to the old one keeps it.
fn create(file: &Path) -> Result<File> {
    // Not there before the first run.
    let _ = fs::remove_file(file);
    File::create(file).context(|| format!("cannot create {}", file.display()))
}

/// An emulator that outlived this program would keep the processors busy for nobody. setpriv, from
/// util-linux, has the kernel end it; without setpriv that protection is missing, no more.
fn dying_with_us(program: Command) -> Command {
    let Some(setpriv) = find_program("setpriv") else {
        return program;
    };
    let mut wrapped = Command::new(setpriv);
    wrapped
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program.get_program());
    wrapped
}

/// Two at least: the programs poll, and the kernel's own work needs a processor as well.
fn processors() -> usize {
    thread::available_parallelism().map_or(2, |count| count.get().clamp(2, 4))
}

/// An oops ends the machine: what it leaves behind hangs, and the console says why it did.
const PARAMETERS: &str = "console=ttyS0 quiet panic=-1 oops=panic mitigations=off";

/// An emulated processor does not promise a steady time-stamp counter, but it has one, made from the
/// host's clock; without it the guest reads a timer chip, which takes 15 times as long.
const EMULATED_CLOCK: &str = "tsc=reliable clocksource=tsc";

/// `shift`: 2^0 nanoseconds for an instruction. `sleep=off`: an idle guest does not wait for the host's
/// clock. Nothing in the guest follows the host's clock then, but for the date.
const COUNTING: [&str; 8] = [
    "-accel",
    "tcg,thread=single",
    "-icount",
    "shift=0,sleep=off",
    "-cpu",
    "max",
    "-rtc",
    "clock=vm",
];

/// Where programs and the kernel lie in memory is the same in every run.
const COUNTED: &str = "norandmaps nokaslr";

fn kernel_parameters(purpose: Purpose, engine: Engine) -> String {
    let mut parameters = vec![PARAMETERS];
    if engine != Engine::Kvm {
        parameters.push(EMULATED_CLOCK);
    }
    if engine == Engine::Counting {
        parameters.push(COUNTED);
    }
    match purpose {
        Purpose::Job { on_terminal: false } => {}
        Purpose::Job { on_terminal: true } => parameters.push("ibnet_terminal=1"),
        Purpose::Shell => parameters.push("ibnet_shell=1"),
        Purpose::Probe => parameters.push("ibnet_probe=1"),
    }
    parameters.join(" ")
}

/// A path within a list of options, where a comma must be doubled.
fn escape(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// The exit status in what the guest wrote to its control port: a whole line `status N`.
fn parse_control(text: &str) -> Option<u8> {
    let lines = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    lines
        .filter_map(|line| line.trim().strip_prefix("status ")?.parse().ok())
        .next_back()
}

/// The exit status of the whole run, or what has gone wrong with the machine.
fn judge(
    end: &End,
    status: Option<u8>,
    panicked: bool,
    ready: bool,
) -> std::result::Result<u8, String> {
    let state = if ready { "" } else { " while it booted" };
    match (end, status) {
        // A kernel that has panicked reports nothing more, so the words alone prove nothing.
        (End::Exited(_), Some(status)) => Ok(status),
        _ if panicked => Err(format!("the guest's kernel panicked{state}")),
        (End::Exited(exit), None) if exit.success() => Err(format!(
            "the guest ended{state} without reporting an exit status"
        )),
        (End::Exited(exit), None) => Err(format!("QEMU failed{state} ({exit})")),
        (End::Silent(limit), _) => Err(format!(
            "the guest printed nothing for {} s{state}",
            limit.as_secs()
        )),
        (End::TooLong(limit), _) => Err(format!(
            "the guest was not done after {} s{state}",
            limit.as_secs()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    #[test]
    fn the_status_is_read_from_a_whole_line() {
        assert_eq!(parse_control("status 0\n"), Some(0));
        assert_eq!(parse_control("status 137\r\n"), Some(137));
        assert_eq!(parse_control("status 13"), None);
        assert_eq!(parse_control("status 256\n"), None);
        assert_eq!(parse_control("status\nstatus x\n"), None);
        assert_eq!(parse_control(""), None);
    }

    #[test]
    fn only_a_reported_status_counts() {
        let exited = |code| End::Exited(ExitStatus::from_raw(code << 8));
        let minute = Duration::from_secs(60);
        assert_eq!(judge(&exited(0), Some(3), false, true), Ok(3));
        let reason = |end, status, panicked, ready| {
            judge(&end, status, panicked, ready)
                .err()
                .unwrap_or_default()
        };
        assert!(reason(exited(0), None, false, true).contains("without reporting"));
        assert!(reason(exited(0), None, false, false).contains("while it booted"));
        assert!(reason(exited(1), None, false, false).contains("QEMU failed"));
        assert!(reason(exited(0), None, true, true).contains("panicked"));
        assert_eq!(judge(&exited(0), Some(0), true, true), Ok(0));
        assert!(reason(End::Silent(minute), Some(0), false, true).contains("nothing for 60 s"));
        assert!(reason(End::TooLong(minute), None, false, true).contains("after 60 s"));
    }

    #[test]
    fn commas_in_paths_are_doubled() {
        assert_eq!(escape(Path::new("/a,b/c")), "/a,,b/c");
    }

    #[test]
    fn the_guest_learns_what_it_is_for() {
        assert!(
            !kernel_parameters(Purpose::Job { on_terminal: false }, Engine::Kvm).contains("ibnet_")
        );
        let on_terminal = kernel_parameters(Purpose::Job { on_terminal: true }, Engine::Kvm);
        assert!(on_terminal.ends_with(" ibnet_terminal=1"));
        assert!(kernel_parameters(Purpose::Shell, Engine::Emulation).ends_with(" ibnet_shell=1"));
        assert!(kernel_parameters(Purpose::Probe, Engine::Kvm).ends_with(" ibnet_probe=1"));
    }
}
