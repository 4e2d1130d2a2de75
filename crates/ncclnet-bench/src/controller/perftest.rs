//! perftest's programs as a measure of what the devices can do.
//!
//! They post verbs themselves, without any of what a transport is for: no announcements of receives, no
//! tags, no groups. They run as processes of their own in each turn.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Failure;
use super::contender::Place;
use super::plan::{Plan, Test};
use super::turns::{Quantity, Turn, Values, higher, lower};

/// What they are called together.
pub(super) const LABEL: &str = "perftest";

const LATENCY: &str = "ib_write_lat";
const BANDWIDTH: &str = "ib_write_bw";

/// The names are those of the other tests, so that they stand in the same figures.
const HALF_ROUND_TRIP: [Quantity; 3] = [
    lower("half round trip, shortest", "us"),
    lower("half round trip, median", "us"),
    lower("half round trip, 99 of 100", "us"),
];
const BYTES: Quantity = higher("bandwidth", "MB/s");
const RATE: Quantity = higher("messages", "1000/s");

/// How long a run may take, and the time for the server to listen.
const LIMIT: Duration = Duration::from_secs(60);

/// What version there is.
pub(super) fn version() -> Result<String, Failure> {
    let output = Command::new(LATENCY)
        .arg("--version")
        .output()
        .map_err(|error| Failure(format!("{LATENCY}: {error}; it is in the package perftest")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Version:"));
    let version = version.map(|version| format!(", {}", version.trim()));
    Ok(format!(
        "{LATENCY} and {BANDWIDTH}{}",
        version.unwrap_or_default()
    ))
}

/// A run of one of the programs.
pub(super) struct Perftest {
    program: &'static str,
    /// Devices here and there.
    devices: [String; 2],
    test: Test,
    size: usize,
    /// Writes under way, if it is not latency.
    window: usize,
    iterations: u64,
    seconds: f64,
}

impl Perftest {
    /// A run that measures what the test does.
    pub(super) fn prepare(
        plan: &Plan,
        test: Test,
        size: usize,
        window: usize,
    ) -> Result<Self, Failure> {
        if plan.place != Place::TwoProcesses {
            return Err(Failure(format!(
                "{LABEL}: runs with two processes on one host only"
            )));
        }
        let [first, ..] = plan.devices.as_slice() else {
            return Err(Failure(format!("{LABEL}: needs to be told a device")));
        };
        let last = plan.devices.get(1).unwrap_or(first);
        let mut run = Self {
            program: match test {
                Test::Latency => LATENCY,
                _ => BANDWIDTH,
            },
            test,
            devices: [first.clone(), last.clone()],
            size,
            window,
            // Fewer than the depth of its queues are not allowed.
            iterations: 100,
            seconds: 0.0,
        };
        // The first run says how many fit into the time.
        let values = run.measure()?;
        let each = match (test, values.as_slice()) {
            (Test::Latency, [_, (_, half), ..]) => 2.0 * half * 1e-6,
            (Test::Rate, [(_, rate)]) => 1e-3 / rate,
            (_, [(_, bandwidth)]) => size as f64 / (bandwidth * 1e6),
            _ => return Err(Failure(format!("{}: nothing was measured", run.program))),
        };
        run.seconds = plan.seconds;
        run.iterations = ((plan.seconds / each) as u64).clamp(100, 1_000_000);
        Ok(run)
    }

    fn command(&self, device: &str, port: u16) -> Command {
        let mut command = Command::new(self.program);
        command.args(["-d", device, "-F", "-s", &self.size.to_string()]);
        command.args(["-n", &self.iterations.to_string()]);
        command.args(["-p", &port.to_string()]);
        if self.test != Test::Latency {
            command.args(["-t", &self.window.to_string()]);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs server and client; the client's output.
    fn output(&self) -> Result<String, Failure> {
        let fail = |what: &str| Failure(format!("{}: {what}", self.program));
        let port = free_port().map_err(|error| fail(&error.to_string()))?;
        let [here, there] = &self.devices;
        let mut server = Process::start(
            self.command(there, port)
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        )
        .map_err(|error| fail(&error.to_string()))?;
        server.wait_for_port(port).map_err(|error| fail(&error))?;
        let client = self
            .command(here, port)
            .arg("127.0.0.1")
            .output()
            .map_err(|error| fail(&error.to_string()))?;
        let text = String::from_utf8_lossy(&client.stdout).into_owned();
        if !client.status.success() {
            let errors = String::from_utf8_lossy(&client.stderr);
            let last = errors
                .lines()
                .chain(text.lines())
                .last()
                .unwrap_or_default();
            return Err(fail(&format!("{}: {last}", client.status)));
        }
        server.wait().map_err(|error| fail(&error))?;
        Ok(text)
    }
}

impl Turn for Perftest {
    fn label(&self) -> &str {
        LABEL
    }

    fn measure(&mut self) -> Result<Values, Failure> {
        let text = self.output()?;
        let unreadable = || Failure(format!("{}: its output was not understood", self.program));
        let [bytes, rate] = match self.test {
            Test::Latency => return latency(&text, self.size).ok_or_else(unreadable),
            _ => bandwidth(&text, self.size).ok_or_else(unreadable)?,
        };
        Ok(vec![if self.test == Test::Rate { rate } else { bytes }])
    }
}

/// The numbers of the line that begins with the size.
fn numbers(text: &str, size: usize) -> Option<Vec<f64>> {
    text.lines().find_map(|line| {
        let words: Vec<f64> = line
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        (words.len() >= 5 && words.first() == Some(&(size as f64))).then_some(words)
    })
}

/// Columns: bytes, iterations, shortest, longest, typical (the median), average, deviation, 99 %.
fn latency(text: &str, size: usize) -> Option<Values> {
    let numbers = numbers(text, size)?;
    let values = [*numbers.get(2)?, *numbers.get(4)?, *numbers.get(7)?];
    Some(HALF_ROUND_TRIP.into_iter().zip(values).collect())
}

/// Columns: bytes, iterations, highest and average MiB/s, millions of messages per second. The last
/// has too few digits for large messages.
fn bandwidth(text: &str, size: usize) -> Option<[(Quantity, f64); 2]> {
    let numbers = numbers(text, size)?;
    let bytes = numbers.get(3)? * f64::from(1 << 20);
    let rate = if size < 1 << 12 {
        numbers.get(4)? * 1e6
    } else {
        bytes / size as f64
    };
    Some([(BYTES, rate * size as f64 / 1e6), (RATE, rate / 1e3)])
}

/// A port that has no listener now.
fn free_port() -> std::io::Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    Ok(listener.local_addr()?.port())
}

/// Whether a table of TCP sockets, as the kernel shows them, has one that listens on the port.
fn listens(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    table.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, state, ..] = words.as_slice() else {
            return false;
        };
        let number = local.rsplit_once(':').map(|(_, number)| number);
        let number = number.and_then(|number| u16::from_str_radix(number, 16).ok());
        *state == LISTEN && number == Some(port)
    })
}

/// A process that does not outlive this value.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> std::io::Result<Self> {
        command.spawn().map(Self)
    }

    /// Waits until a port has a listener. A try to connect would be taken for the client.
    fn wait_for_port(&mut self, port: u16) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < LIMIT {
            let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
            let mut tables = tables.into_iter().flatten();
            if tables.any(|table| listens(&table, port)) {
                return Ok(());
            }
            if let Ok(Some(status)) = self.0.try_wait() {
                return Err(format!("the server ended: {status}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err("the server does not listen".to_owned())
    }

    fn wait(&mut self) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < LIMIT {
            match self.0.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("the server ended: {status}")),
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("the server does not end".to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn sockets_that_listen_are_seen() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
             \x20  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000\n\
             \x20  1: 0100007F:1F91 0100007F:0050 01 00000000:00000000 00:00000000\n";
        assert!(listens(table, 8080));
        assert!(!listens(table, 8081) && !listens(table, 80));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = std::fs::read_to_string("/proc/net/tcp").unwrap();
        assert!(listens(&own, port));
    }

    #[test]
    fn latency_is_read() {
        let text = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n\
             8       1000          8.04           92.55        9.12     \t       10.05       \t5.10\t\t20.47   \t\t92.55 \n";
        let values: Vec<f64> = latency(text, 8)
            .unwrap()
            .iter()
            .map(|(_, value)| *value)
            .collect();
        assert_eq!(values, [8.04, 9.12, 20.47]);
        assert!(latency(text, 16).is_none());
        assert!(latency("", 8).is_none());
    }

    #[test]
    fn bandwidth_is_read() {
        let text = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n\
             \x20 1048576    500              101.50             100.00             0.000100\n\
             \x20 8          5000             0.49               0.46               0.060000\n";
        let large = bandwidth(text, 1 << 20).unwrap();
        assert_eq!(large[0].1, 104.8576);
        let small = bandwidth(text, 8).unwrap();
        assert!((small[1].1 - 60.0).abs() < 1e-9);
    }
}
