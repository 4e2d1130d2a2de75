//! Machines from descriptions: a tree of sysfs and simulated devices on it.
//!
//! ```text
//! pci ADDRESS [under ADDRESS] [id=VENDOR:DEVICE]      a PCI function; 3b:00.0 is 0000:3b:00.0
//! vf ADDRESS of ADDRESS [id=…] [dangling]             a virtual function of another
//! net NAME [speed=MBPS] [bond] [over NAME,NAME]       a network interface
//! own ADDRESS,ADDRESS                                 the addresses of the network namespace
//! file PATH [TEXT]                                    a file below the root
//! rdma NAME on PLACE [guid=N] [transport=N] [refuses=ERRNO] [no-dmabuf] : PORT; PORT
//! ```
//!
//! PLACE is an address, `ADDRESS/NAME` for a sub-function below it, `virtual`, `platform`, or
//! `nowhere`: the device's directory is not there. A port is
//! `ib|eth RATE [down] [effective=MBPS] [net=NAME,NAME] [lid=N] [small] [gid=ADDRESS,…] [pkeys=N,…]`;
//! RATE is
//! `4xNDR` or `raw:WIDTH:SPEED` in the codes of the specification. Of the addresses each is on the
//! next of the interfaces, and what are left on the loop-back interface.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use ibnet::{Config, DeviceInfo, Error, Transport};
use ibnet_simverbs::{ContextKind, DeviceSpec, Fabric, GidSlot, LaneSpeed, PortSpec, Width};
use ibnet_verbs::{Gid, GidType};

use crate::drivers::{self, Driver, RawPort};

/// A machine. Its files are removed on drop.
pub(crate) struct Machine {
    root: PathBuf,
    functions: BTreeMap<String, PathBuf>,
    interfaces: Vec<String>,
    own_addresses: Option<Vec<IpAddr>>,
    specs: Vec<DeviceSpec>,
    drivers: BTreeMap<String, Driver>,
}

impl Machine {
    pub(crate) fn new(description: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ibnet-machine-{}-{number}", std::process::id());
        // In memory where that is possible: these are thousands of small files.
        let folders = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
        let root = folders
            .iter()
            .map(|folder| folder.join(&name))
            .find(|root| {
                // What a killed process of the same number left behind.
                let _ = fs::remove_dir_all(root);
                fs::create_dir_all(root.join("class/infiniband")).is_ok()
            })
            .unwrap();
        let mut machine = Self {
            root: root.canonicalize().unwrap(),
            functions: BTreeMap::new(),
            interfaces: Vec::new(),
            own_addresses: None,
            specs: Vec::new(),
            drivers: BTreeMap::new(),
        };
        machine.write(Path::new("class/net/lo/ifindex"), "1");
        // A line that ends with a backslash goes on with the next.
        for line in description.replace("\\\n", " ").lines().map(str::trim) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [] => {}
                ["pci", address, ref rest @ ..] => machine.add_function(address, rest),
                ["vf", address, "of", physical, ref rest @ ..] => {
                    machine.add_function(address, rest);
                    machine.link_function(address, physical, rest.contains(&"dangling"));
                }
                ["net", name, ref rest @ ..] => machine.add_interface(name, rest),
                ["own", addresses] => {
                    let own = addresses.split(',').map(|address| address.parse().unwrap());
                    machine.own_addresses = Some(own.collect());
                }
                ["file", path, ref text @ ..] => machine.write(Path::new(path), &text.join(" ")),
                ["rdma", name, "on", place, ..] => machine.add_device(name, place, line),
                _ => panic!("{line:?} describes nothing"),
            }
        }
        machine
    }

    /// The simulated devices alone.
    pub(crate) fn fabric(&self) -> Fabric {
        let builder = self.specs.iter().cloned();
        builder
            .fold(Fabric::builder(), |builder, spec| builder.device(spec))
            .build()
            .unwrap()
    }

    /// The machine's library: simulated devices with their drivers.
    pub(crate) fn library(&self, fabric: &Fabric) -> ibnet_verbs::Library {
        drivers::install(&fabric.library(), self.drivers.clone())
    }

    /// Settings from variables, with sysfs where it is here.
    pub(crate) fn config(&self, variables: &[(&str, &str)]) -> Config {
        let mut config = Config::from_variables(&|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
        .unwrap();
        config.sysfs.clone_from(&self.root);
        config.device_nodes = self.root.join("dev");
        config.own_addresses.clone_from(&self.own_addresses);
        config.interfaces = "=lo".parse().unwrap();
        config
    }

    pub(crate) fn open(
        &self,
        fabric: &Fabric,
        variables: &[(&str, &str)],
    ) -> Result<Transport, Error> {
        Transport::with_library(self.library(fabric), self.config(variables))
    }

    /// A path below the root.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn write(&self, path: &Path, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn add_function(&mut self, address: &str, words: &[&str]) {
        let address = full(address);
        let above = match words {
            ["under", above, ..] => self.functions[&full(above)].clone(),
            _ => self.root.join("devices/pci0000:00"),
        };
        let path = above.join(&address);
        let (vendor, device) = value(words, "id=")
            .and_then(|id| id.split_once(':'))
            .unwrap_or(("15b3", "101b"));
        self.write(&path.join("vendor"), &format!("0x{vendor}"));
        self.write(&path.join("device"), &format!("0x{device}"));
        self.functions.insert(address, path);
    }

    fn link_function(&self, address: &str, physical: &str, is_dangling: bool) {
        let own = &self.functions[&full(address)];
        let link = own.join("physfn");
        let target = if is_dangling {
            Path::new("../..")
                .join("0000:ff:1f.7/gone")
                .join(full(physical))
        } else {
            self.functions[&full(physical)].clone()
        };
        symlink(target, link).unwrap();
    }

    fn add_interface(&mut self, name: &str, words: &[&str]) {
        let folder = Path::new("class/net").join(name);
        self.interfaces.push(name.to_owned());
        self.write(&folder.join("ifindex"), &self.number(name).to_string());
        if let Some(speed) = value(words, "speed=") {
            self.write(&folder.join("speed"), speed);
        }
        if words.contains(&"bond") {
            self.write(&folder.join("bonding/mode"), "802.3ad 4");
        }
        if let Some(at) = words.iter().position(|word| *word == "over") {
            for lower in words[at + 1].split(',') {
                self.write(&folder.join(format!("lower_{lower}/name")), lower);
            }
        }
    }

    /// The number of a network interface. 1 is the loop-back interface, and each that is not there
    /// is in another network namespace.
    fn number(&self, interface: &str) -> u32 {
        let place = self.interfaces.iter().position(|name| name == interface);
        place.map_or(99, |place| place as u32 + 2)
    }

    fn add_device(&mut self, name: &str, place: &str, line: &str) {
        let (head, ports) = line.split_once(" : ").unwrap();
        let head: Vec<&str> = head.split_whitespace().collect();
        let directory = self.place_device(name, place);
        let mut driver = Driver {
            transport: value(&head, "transport=").map(|number| number.parse().unwrap()),
            refuses: value(&head, "refuses=").map(|errno| errno.parse().unwrap()),
            ports: BTreeMap::new(),
        };
        let mut specs = Vec::new();
        for (number, port) in (1..).zip(ports.split(';')) {
            let words: Vec<&str> = port.split_whitespace().collect();
            let interfaces: Vec<&str> =
                value(&words, "net=").map_or_else(Vec::new, |names| names.split(',').collect());
            let numbers = interfaces.iter().map(|interface| self.number(interface));
            specs.push(port_spec(&words, numbers));
            if let Some(raw) = raw_port(&words) {
                driver.ports.insert(number, raw);
            }
            for (index, interface) in interfaces.into_iter().enumerate() {
                let file = format!("ports/{number}/gid_attrs/ndevs/{index}");
                self.write(&directory.join(file), interface);
            }
        }
        let guid = value(&head, "guid=").map(|guid| u64::from_str_radix(guid, 16).unwrap());
        let mut spec = DeviceSpec::roce(name)
            .ports(specs)
            .sysfs_path(self.root.join("class/infiniband").join(name));
        if let Some(guid) = guid {
            spec = spec.guids(guid << 8 | self.specs.len() as u64, guid);
        }
        if head.contains(&"no-dmabuf") {
            spec = spec.without_dmabuf();
        }
        if !driver.ports.is_empty() {
            // Only this kind is asked by a function that can be replaced.
            spec = spec.context(ContextKind::Legacy);
        }
        self.specs.push(spec);
        self.drivers.insert(name.to_owned(), driver);
    }

    /// Makes the directory of a device, as the kernel lays it out, and gives it.
    fn place_device(&self, name: &str, place: &str) -> PathBuf {
        let class = self.root.join("class/infiniband").join(name);
        let (parent, has_parent_device) = match place {
            "nowhere" => return self.root.join("unseen").join(name),
            "virtual" => (self.root.join("devices/virtual"), false),
            "platform" => (self.root.join("devices/platform/HISI00D1:00"), true),
            address => {
                let (address, below) = address.split_once('/').unwrap_or((address, ""));
                (self.functions[&full(address)].join(below), true)
            }
        };
        let directory = parent.join("infiniband").join(name);
        fs::create_dir_all(&directory).unwrap();
        if has_parent_device {
            symlink("../..", directory.join("device")).unwrap();
        }
        symlink(&directory, class).unwrap();
        directory
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// One line on a device, for comparison.
pub(crate) fn line(info: &DeviceInfo) -> String {
    let mut line = format!("{}:{} {}", info.name, info.port, info.speed_mbps);
    if let Some(function) = info.pci_function {
        line += &format!(" at {}", short(&function.to_string()));
    }
    if let Some(card) = &info.pci_path {
        assert!(
            card.join("vendor").exists(),
            "{} is no PCI device",
            card.display()
        );
        line += &format!(
            " card {}",
            short(card.file_name().unwrap().to_str().unwrap())
        );
    }
    line += &format!(" #{}", info.port_ordinal);
    if let Some(physical) = info.physical_function {
        line += &format!(" vf-of {}", short(&physical.to_string()));
    }
    for (word, number) in [("rail", info.rail), ("plane", info.plane)] {
        if let Some(number) = number {
            line += &format!(" {word} {number}");
        }
    }
    for (word, is_set) in [
        ("peer", info.peer_memory),
        ("no-dmabuf", !info.dmabuf),
        ("flush", info.force_flush),
    ] {
        if is_set {
            line += &format!(" {word}");
        }
    }
    line
}

fn value<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(key))
}

fn full(address: &str) -> String {
    match address.matches(':').count() {
        1 => format!("0000:{address}"),
        _ => address.to_owned(),
    }
}

fn short(address: &str) -> &str {
    address.strip_prefix("0000:").unwrap_or(address)
}

/// `interfaces` are the numbers of those that its GIDs are on, one each.
fn port_spec(words: &[&str], interfaces: impl Iterator<Item = u32>) -> PortSpec {
    let mut spec = match words[0] {
        "ib" => PortSpec::infiniband(),
        "eth" => PortSpec::roce(),
        other => panic!("{other:?} is no link layer"),
    };
    if let Some((lanes, speed)) = words[1].split_once('x') {
        spec = spec.lanes(width(lanes), lane_speed(speed));
    }
    if words.contains(&"down") {
        spec = spec.down();
    }
    if words.contains(&"small") {
        spec = spec.max_message(64);
    }
    if let Some(pkeys) = value(words, "pkeys=") {
        let pkeys = pkeys.split(',').map(|pkey| u16::from_str_radix(pkey, 16));
        spec = spec.pkeys(pkeys.map(Result::unwrap));
    }
    if let Some(speed) = value(words, "effective=") {
        spec = spec.speed(speed.parse().unwrap());
    }
    let addresses = value(words, "gid=").unwrap_or_default().split(',');
    let mut addresses = addresses.filter(|address| !address.is_empty());
    let mut gids: Vec<GidSlot> = Vec::new();
    for number in interfaces {
        let own = format!("10.1.0.{number}");
        gids.push(gid(addresses.next().unwrap_or(&own), number));
    }
    gids.extend(addresses.map(|address| gid(address, 1)));
    if !gids.is_empty() && words[0] == "eth" {
        spec = spec.gids(gids);
    }
    spec
}

/// On the interface of this number.
fn gid(address: &str, number: u32) -> GidSlot {
    GidSlot::Entry {
        gid: match address.parse().unwrap() {
            IpAddr::V4(v4) => Gid::from(v4.to_ipv6_mapped()),
            IpAddr::V6(v6) => Gid::from(v6),
        },
        gid_type: GidType::RoceV2,
        netdev: Some(number),
    }
}

fn raw_port(words: &[&str]) -> Option<RawPort> {
    let lid = value(words, "lid=").map(|lid| lid.parse().unwrap());
    let link_layer = value(words, "link=").map(|link| link.parse().unwrap());
    let mut raw = RawPort {
        lid,
        link_layer,
        ..RawPort::default()
    };
    if let Some((width, speed)) = words[1]
        .strip_prefix("raw:")
        .and_then(|codes| codes.split_once(':'))
    {
        raw.width = Some(width.parse().unwrap());
        raw.speed = Some(speed.parse().unwrap());
    }
    let is_raw = raw.lid.is_some() || raw.width.is_some() || raw.link_layer.is_some();
    is_raw.then_some(raw)
}

fn width(lanes: &str) -> Width {
    match lanes {
        "1" => Width::X1,
        "2" => Width::X2,
        "4" => Width::X4,
        "8" => Width::X8,
        "12" => Width::X12,
        other => panic!("{other} lanes"),
    }
}

fn lane_speed(name: &str) -> LaneSpeed {
    match name {
        "SDR" => LaneSpeed::Sdr,
        "DDR" => LaneSpeed::Ddr,
        "QDR" => LaneSpeed::Qdr,
        "FDR10" => LaneSpeed::Fdr10,
        "FDR" => LaneSpeed::Fdr,
        "EDR" => LaneSpeed::Edr,
        "HDR" => LaneSpeed::Hdr,
        "NDR" => LaneSpeed::Ndr,
        "XDR" => LaneSpeed::Xdr,
        other => panic!("{other:?} is no speed"),
    }
}
