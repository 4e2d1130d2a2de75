//! The command line.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use lexopt::Parser;
use lexopt::prelude::*;

use crate::controller::{Place, Plan, Test};
use crate::net::Source;

/// What to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Request {
    /// Print the help.
    Help,
    /// Measure, and show the results.
    Run { plan: Box<Plan>, output: Output },
    /// Serve controllers on other hosts.
    Listen {
        address: String,
        sources: Vec<Source>,
        yields: bool,
    },
    /// Serve a controller at the other end of standard input and output.
    Worker { source: Source, yields: bool },
    /// Show results that were written before.
    Report { files: Vec<PathBuf>, output: Output },
    /// Copy NCCL's library without its code for GPUs.
    Shrink { from: PathBuf, to: PathBuf },
}

/// Where results go besides the table on standard output.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Output {
    /// A folder for the table, the JSON and the plots.
    pub(crate) folder: Option<PathBuf>,
    /// A file for the JSON; `-` is one line of standard output that begins with
    /// [`JSON_MARK`](crate::JSON_MARK).
    pub(crate) json: Option<PathBuf>,
}

pub(crate) const HELP: &str = "\
Measures networks with NCCL's plugin interface (versions 6 to 12) on host memory, without a GPU.

usage: ncclnet-bench [run] --net [LABEL=]FILE[:SYMBOL] ... [OPTIONS]
       ncclnet-bench --listen ADDRESS:PORT --net ... [--yield]
       ncclnet-bench report FILE.json ... [--out DIR] [--json FILE]
       ncclnet-bench shrink LIBNCCL COPY

FILE is a path, or a name on the library path: of a network plugin, or of NCCL's library, whose own
InfiniBand transport is then measured. Without SYMBOL the newest ncclNetPlugin_vN is taken, or ncclNetIb
of NCCL. Several networks are measured in turn, and the first one's figures are divided by the others'.

Where the two ends are:
  --one-thread             Both in one thread: what the network costs the processor
                           (the default is two processes on this host)
  --connect HOST:PORT      One here and one at a host that runs with --listen; it knows the same labels
  --listen ADDRESS:PORT    Serve such runs. All that can connect there can use it: no untrusted networks
  --device NAME[,NAME]     The device, or that of the sending and that of the receiving end.
                           NAME+NAME is a device made of several
  --merged NAME+NAME       In one thread: repeat with this device made of two

What is measured:
  --tests LIST             Of loop, latency, bandwidth, rate, groups, registrations, connections, growth.
                           All that have a meaning there, if not given
  --sizes LIST             Bytes of messages (8,4K,64K,1M; in one thread 8)
  --windows LIST           Receives under way, at most 32 (1,8,32)
  --groups LIST            Messages per receive, at most 8 (1,8)
  --paths LIST             In one thread: queue pairs per connection (1), by NCCL_IB_QPS_PER_CONNECTION
  --connections LIST       Connections that are open (1,10,100,1000); made in five parts, in turn
  --registrations LIST     Registrations that are live (1K,10K,100K, in decimal)

How:
  --rounds N               Values of each figure (5)
  --seconds S              Time of one of them (0.2; in one thread 0.05)
  --no-verify              Do not check data before measuring
  --yield                  Give the processor away after a fruitless poll, as NCCL's threads do
  --perftest               Let ib_write_lat and ib_write_bw take part (with two processes, and --device)
  --callgrind              In one thread: count instructions with valgrind

Results (the table goes to standard output):
  --title TEXT             What it is called
  --out DIR                Write results.md, results.json and plots there
  --json FILE              Write the JSON there; `-` is a line of standard output
";

/// Reads the arguments after the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, String> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let (name, rest) = match arguments.split_first() {
        Some((first, rest)) if first.to_str().is_some_and(|text| !text.starts_with('-')) => {
            (first.to_string_lossy().into_owned(), rest)
        }
        Some(_) => ("run".to_owned(), arguments.as_slice()),
        None => return Ok(Request::Help),
    };
    let parser = Parser::from_args(rest.iter().cloned());
    let mut option = String::new();
    let request = match name.as_str() {
        "help" => return Ok(Request::Help),
        "run" => run(parser, &mut option),
        "worker" => worker(parser),
        "report" => report(parser),
        "shrink" => shrink(parser),
        other => return Err(format!("there is no command `{other}`; --help tells them")),
    };
    request.map_err(|error| {
        if !option.is_empty() {
            option.push_str(": ");
        }
        format!("{option}{error}; --help tells the options")
    })
}

/// `option` is the one at hand when something is wrong with its value.
fn run(mut parser: Parser, option: &mut String) -> Result<Request, lexopt::Error> {
    let mut given = Given::default();
    while let Some(argument) = parser.next()? {
        option.clear();
        if let Long(name) = argument {
            *option = format!("--{name}");
        }
        match argument {
            Short('h') | Long("help") => return Ok(Request::Help),
            Long("net") => given.sources.push(source(&mut parser)?),
            Long("one-thread") => given.one_thread = true,
            Long("connect") => given.connect = Some(parser.value()?.string()?),
            Long("listen") => given.listen = Some(parser.value()?.string()?),
            Long("device") => given.devices = list(&mut parser)?,
            Long("merged") => given.merged = Some(parser.value()?.string()?),
            Long("tests") => given.tests = Some(list(&mut parser)?),
            Long("sizes") => given.sizes = Some(bytes(&mut parser)?),
            Long("windows") => given.windows = Some(within(&mut parser, 1, 32)?),
            Long("groups") => given.groups = Some(within(&mut parser, 1, 8)?),
            Long("paths") => given.paths = Some(within(&mut parser, 1, 128)?),
            Long("connections") => given.connections = Some(within(&mut parser, 1, 10_000)?),
            Long("registrations") => given.registrations = Some(decimal(&mut parser)?),
            Long("rounds") => given.rounds = Some(parser.value()?.parse()?),
            Long("seconds") => given.seconds = Some(parser.value()?.parse()?),
            Long("no-verify") => given.no_verify = true,
            Long("yield") => given.yields = true,
            Long("perftest") => given.perftest = true,
            Long("callgrind") => given.callgrind = true,
            Long("title") => given.title = Some(parser.value()?.string()?),
            Long("out") => given.output.folder = Some(parser.value()?.into()),
            Long("json") => given.output.json = Some(parser.value()?.into()),
            other => {
                option.clear();
                return Err(other.unexpected());
            }
        }
    }
    option.clear();
    given.request().map_err(lexopt::Error::from)
}

/// The options of a run, as they were given.
#[derive(Default)]
struct Given {
    sources: Vec<Source>,
    one_thread: bool,
    connect: Option<String>,
    listen: Option<String>,
    devices: Vec<String>,
    merged: Option<String>,
    tests: Option<Vec<Test>>,
    sizes: Option<Vec<usize>>,
    windows: Option<Vec<usize>>,
    groups: Option<Vec<usize>>,
    paths: Option<Vec<u32>>,
    connections: Option<Vec<usize>>,
    registrations: Option<Vec<usize>>,
    rounds: Option<usize>,
    seconds: Option<f64>,
    no_verify: bool,
    yields: bool,
    perftest: bool,
    callgrind: bool,
    title: Option<String>,
    output: Output,
}

impl Given {
    fn request(self) -> Result<Request, String> {
        if self.sources.is_empty() {
            return Err("at least one --net is needed".to_owned());
        }
        let mut labels: Vec<&str> = self
            .sources
            .iter()
            .map(|source| source.label.as_str())
            .collect();
        labels.sort_unstable();
        if let Some(pair) = labels.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two networks are called {}", pair[0]));
        }
        let place = match (self.one_thread, self.connect, self.listen) {
            (true, None, None) => Place::OneThread,
            (false, None, None) => Place::TwoProcesses,
            (false, Some(address), None) => Place::TwoHosts(address),
            (false, None, Some(address)) => {
                return Ok(Request::Listen {
                    address,
                    sources: self.sources,
                    yields: self.yields,
                });
            }
            _ => {
                return Err(
                    "only one of --one-thread, --connect and --listen can be given".to_owned(),
                );
            }
        };
        let in_one_thread = place == Place::OneThread;
        if !in_one_thread && (self.merged.is_some() || self.paths.is_some() || self.callgrind) {
            return Err("--merged, --paths and --callgrind go with --one-thread only".to_owned());
        }
        if let Some(merged) = &self.merged {
            let names: BTreeSet<&str> = merged.split('+').collect();
            if names.len() < 2 || names.contains("") {
                return Err(format!(
                    "--merged: {merged}: expected several devices, as NAME+NAME"
                ));
            }
        }
        if self.perftest && place != Place::TwoProcesses {
            return Err("--perftest goes with two processes on one host only".to_owned());
        }
        if self.devices.len() > 2 {
            return Err("--device takes one or two names".to_owned());
        }
        if self.rounds == Some(0) {
            return Err("--rounds must be at least 1".to_owned());
        }
        if self
            .seconds
            .is_some_and(|seconds| !(0.0..=60.0).contains(&seconds))
        {
            return Err("--seconds must be from 0 to 60".to_owned());
        }
        let tests = self.tests.unwrap_or_else(|| Test::ALL.to_vec());
        let tests: Vec<Test> = tests
            .into_iter()
            .filter(|test| test.is_for(&place))
            .collect();
        if tests.is_empty() {
            return Err("none of these tests has a meaning there".to_owned());
        }
        let (sizes, seconds) = if in_one_thread {
            (vec![8], 0.05)
        } else {
            (vec![8, 4 << 10, 64 << 10, 1 << 20], 0.2)
        };
        let plan = Plan {
            title: self.title.unwrap_or_else(|| {
                match &place {
                    Place::OneThread => "one thread",
                    Place::TwoProcesses => "two processes",
                    Place::TwoHosts(_) => "two hosts",
                }
                .to_owned()
            }),
            sources: self.sources,
            place,
            devices: self.devices,
            merged: self.merged,
            tests,
            sizes: self.sizes.unwrap_or(sizes),
            windows: self.windows.unwrap_or_else(|| vec![1, 8, 32]),
            groups: self.groups.unwrap_or_else(|| vec![1, 8]),
            paths: self.paths.unwrap_or_else(|| vec![1]),
            connections: self.connections.unwrap_or_else(|| vec![1, 10, 100, 1000]),
            registrations: self
                .registrations
                .unwrap_or_else(|| vec![1_000, 10_000, 100_000]),
            rounds: self.rounds.unwrap_or(5),
            seconds: self.seconds.unwrap_or(seconds),
            verify: !self.no_verify,
            perftest: self.perftest,
            callgrind: self.callgrind,
            yields: self.yields,
        };
        Ok(Request::Run {
            plan: Box::new(plan),
            output: self.output,
        })
    }
}

fn worker(mut parser: Parser) -> Result<Request, lexopt::Error> {
    let (mut given, mut yields) = (None, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("net") => given = Some(source(&mut parser)?),
            Long("yield") => yields = true,
            other => return Err(other.unexpected()),
        }
    }
    let source = given.ok_or("a worker needs --net")?;
    Ok(Request::Worker { source, yields })
}

fn report(mut parser: Parser) -> Result<Request, lexopt::Error> {
    let (mut files, mut output) = (Vec::new(), Output::default());
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(Request::Help),
            Long("out") => output.folder = Some(parser.value()?.into()),
            Long("json") => output.json = Some(parser.value()?.into()),
            Value(file) => files.push(file.into()),
            other => return Err(other.unexpected()),
        }
    }
    if files.is_empty() {
        return Err("at least one file with results is needed".into());
    }
    Ok(Request::Report { files, output })
}

fn shrink(mut parser: Parser) -> Result<Request, lexopt::Error> {
    let mut paths: Vec<PathBuf> = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(Request::Help),
            Value(path) => paths.push(path.into()),
            other => return Err(other.unexpected()),
        }
    }
    match <[PathBuf; 2]>::try_from(paths) {
        Ok([from, to]) => Ok(Request::Shrink { from, to }),
        Err(_) => Err("two paths are needed: the library and its copy".into()),
    }
}

fn source(parser: &mut Parser) -> Result<Source, lexopt::Error> {
    Ok(Source::parse(&parser.value()?.string()?)?)
}

/// A list of anything that can be read from text, separated by commas.
fn list<T: FromStr>(parser: &mut Parser) -> Result<Vec<T>, lexopt::Error>
where
    T::Err: std::fmt::Display,
{
    let text = parser.value()?.string()?;
    let read = |item: &str| {
        let item = item.trim();
        item.parse()
            .map_err(|error| format!("`{item}`: {error}").into())
    };
    text.split(',').map(read).collect()
}

fn within<T: FromStr + PartialOrd + std::fmt::Display + Copy>(
    parser: &mut Parser,
    least: T,
    most: T,
) -> Result<Vec<T>, lexopt::Error>
where
    T::Err: std::fmt::Display,
{
    let numbers: Vec<T> = list(parser)?;
    match numbers
        .iter()
        .find(|number| !(least..=most).contains(number))
    {
        Some(number) => Err(format!("{number} is not from {least} to {most}").into()),
        None => Ok(numbers),
    }
}

/// Numbers of bytes: 8, 4K, 1M.
fn bytes(parser: &mut Parser) -> Result<Vec<usize>, lexopt::Error> {
    scaled(parser, 1024, 1 << 30)
}

/// Numbers of things: 500, 10K.
fn decimal(parser: &mut Parser) -> Result<Vec<usize>, lexopt::Error> {
    scaled(parser, 1000, 1_000_000)
}

fn scaled(parser: &mut Parser, thousand: usize, most: usize) -> Result<Vec<usize>, lexopt::Error> {
    let items: Vec<String> = list(parser)?;
    let read = |item: &String| {
        let (digits, factor) = match item.strip_suffix(['k', 'K']) {
            Some(digits) => (digits, thousand),
            None => match item.strip_suffix(['m', 'M']) {
                Some(digits) => (digits, thousand * thousand),
                None => (item.as_str(), 1),
            },
        };
        let number = digits
            .parse::<usize>()
            .ok()
            .and_then(|number| number.checked_mul(factor));
        let number = number.filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| {
            format!("`{item}`: expected a number from 1 to {most}, which K or M may follow").into()
        })
    };
    items.iter().map(read).collect()
}

impl FromStr for Test {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|test| test.name() == text);
        found.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|test| test.name()).collect();
            format!("there is no such test, there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn request(line: &str) -> Result<Request, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn plan(line: &str) -> Plan {
        match request(line).unwrap() {
            Request::Run { plan, .. } => *plan,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn defaults_fit_the_place() {
        let two = plan("--net a=x.so");
        assert_eq!(two.place, Place::TwoProcesses);
        assert_eq!(two.sizes, [8, 4096, 65536, 1 << 20]);
        assert!(two.verify && !two.tests.contains(&Test::Loop));
        let one = plan("run --net a=x.so --one-thread");
        assert_eq!((one.place, one.sizes), (Place::OneThread, vec![8]));
        assert!(one.tests.contains(&Test::Loop) && !one.tests.contains(&Test::Latency));
    }

    #[test]
    fn lists_and_numbers_are_read() {
        let plan = plan(
            "--net a=x.so --net b=y.so --sizes 8,2K,1M --windows=1,4 --groups 8 --rounds 7 \
             --registrations 1K,2 --seconds 0.5 --tests rate,latency --device p,q --no-verify",
        );
        assert_eq!(plan.sources.len(), 2);
        assert_eq!(plan.sizes, [8, 2048, 1 << 20]);
        assert_eq!((plan.windows, plan.groups), (vec![1, 4], vec![8]));
        assert_eq!((plan.registrations, plan.rounds), (vec![1000, 2], 7));
        assert_eq!(plan.tests, [Test::Rate, Test::Latency]);
        assert_eq!(plan.devices, ["p", "q"]);
        assert!(!plan.verify);
    }

    #[test]
    fn other_commands() {
        assert_eq!(request("").unwrap(), Request::Help);
        assert_eq!(request("--net a=x --help").unwrap(), Request::Help);
        assert!(matches!(
            request("worker --net a=x.so --yield").unwrap(),
            Request::Worker { yields: true, .. }
        ));
        assert!(matches!(
            request("--listen 0.0.0.0:7 --net a=x.so").unwrap(),
            Request::Listen { .. }
        ));
        let report = request("report a.json b.json --out d").unwrap();
        assert!(matches!(report, Request::Report { files, .. } if files.len() == 2));
        assert!(matches!(
            request("shrink a b").unwrap(),
            Request::Shrink { .. }
        ));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (line, named) in [
            ("--sizes 8", "--net"),
            ("--net a=x --net a=y", "called a"),
            ("--net a=x --one-thread --connect h:1", "only one"),
            ("--net a=x --paths 4", "--one-thread"),
            ("--net a=x --one-thread --perftest", "--perftest"),
            ("--net a=x --windows 64", "64"),
            ("--net a=x --windows 0", "0"),
            ("--net a=x --sizes 8,x", "`x`"),
            ("--net a=x --tests fast", "`fast`"),
            ("--net a=x --one-thread --tests latency", "meaning"),
            ("--net a=x --rounds 0", "--rounds"),
            ("--net a=x --seconds -1", "--seconds"),
            ("--net a=x --device a,b,c", "--device"),
            ("--net a=x --fast", "--fast"),
            ("fly", "`fly`"),
            ("worker", "--net"),
            ("report", "file"),
            ("shrink a", "two paths"),
        ] {
            let error = request(line).unwrap_err();
            assert!(error.contains(named), "{line}: {error}");
        }
    }

    #[test]
    fn a_wrong_value_names_its_option() {
        let text = |line: &str| request(line).unwrap_err();
        for (line, option) in [
            ("--net a=x.so --windows 33", "--windows"),
            ("--net a=x.so --sizes 1G", "--sizes"),
            ("--net a=x.so --connections abc", "--connections"),
            ("--net a=x.so --one-thread --merged null0", "--merged"),
            ("--net a=x.so --one-thread --merged null0+null0", "--merged"),
        ] {
            assert!(text(line).starts_with(option), "{}", text(line));
        }
        assert!(!text("--net a=x.so --rounds 0 --windows 1").starts_with("--windows"));
    }
}
