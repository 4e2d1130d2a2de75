//! Processes that do not outlive the one that started them.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has the kernel kill the process when the thread that starts it ends, however that happens. To be
/// started from a thread that lives as long as the program.
///
/// See also: PR_SET_PDEATHSIG in prctl(2).
pub fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let prepare = move || {
        // SAFETY: prctl and getppid take plain numbers, and may be called between fork and exec.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // The parent may have died before that.
            if u32::try_from(libc::getppid()) != Ok(parent) {
                return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
        Ok(())
    };
    // SAFETY: `prepare` does nothing that is not allowed after fork: two system calls, and no
    // allocation.
    unsafe { command.pre_exec(prepare) };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{BufRead, BufReader, Read};
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    use super::*;

    /// The parent of the test below: a process of its own, in which a test of this name runs.
    const PARENT: &str = "IBNET_EXAMPLES_TEST_PARENT";

    #[test]
    fn a_parent_that_is_terminated_takes_its_children_along() {
        const NAME: &str = "parent::tests::a_parent_that_is_terminated_takes_its_children_along";
        if std::env::var_os(PARENT).is_some() {
            let mut child = Command::new("sh");
            child.args(["-c", "echo started; exec sleep 30"]);
            die_with_parent(&mut child);
            child.spawn().unwrap().wait().unwrap();
            return;
        }
        let mut parent = Command::new(std::env::current_exe().unwrap())
            .args([NAME, "--exact", "--nocapture"])
            .env(PARENT, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The child writes to the same pipe, which ends when nobody is left to write.
        let mut output = BufReader::new(parent.stdout.take().unwrap());
        let mut line = String::new();
        while line.trim_end() != "started" {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "it never started");
        }
        let start = Instant::now();
        // SAFETY: the call takes plain numbers; the process is our own child, not yet waited for.
        assert_eq!(unsafe { libc::kill(parent.id() as i32, libc::SIGTERM) }, 0);
        output.read_to_end(&mut Vec::new()).unwrap();
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "the child went on"
        );
        parent.wait().unwrap();
    }
}
