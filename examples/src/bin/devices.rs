//! What the transport finds on this machine, and why: the devices in the order in which it counts
//! them, what was left out, and for each port the verdict on every entry of its GID table.
//!
//! ```text
//! devices [--simulator | --no-simulator]
//! ```
//!
//! The environment counts as it does for NCCL: `NCCL_IB_HCA`, `NCCL_IB_GID_INDEX` and the others can
//! be tried out here. What the transport warns of is on standard error.

use std::fmt::Write;
use std::process::ExitCode;

use ibnet::{Config, DeviceInfo, PortReport};
use ibnet_examples::{Devices, Wanted, conclude, refuse, say, show_warnings};

const HELP: &str = "\
Shows the RDMA devices that the transport finds on this machine, and why each GID is used or not.

usage: devices [options]

  --simulator         look at simulated devices, sim0 and sim1, whatever this host has
  --no-simulator      fail if there is no real device";

fn main() -> ExitCode {
    let (mut simulator, mut no_simulator) = (false, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--help" | "-h" => {
                say!("{HELP}");
                return ExitCode::SUCCESS;
            }
            "--simulator" => simulator = true,
            "--no-simulator" => no_simulator = true,
            other => {
                return refuse("devices", &format!("unknown option {other}"), HELP);
            }
        }
    }
    show_warnings();
    conclude("devices", run(simulator, no_simulator))
}

fn run(simulator: bool, no_simulator: bool) -> Result<(), Box<dyn std::error::Error>> {
    let wanted = Wanted::from_flags(simulator, no_simulator, false)?;
    let mut config = Config::from_env()?;
    let devices = Devices::open(wanted, config.clone())?;
    say!("# devices {devices}");
    let transport = match devices {
        Devices::Real(transport) => transport,
        Devices::Simulated(simulator) => {
            simulator.adapt(&mut config)?;
            let transport = simulator.transport(config)?;
            // The transport keeps the simulated devices.
            drop(simulator);
            transport
        }
    };
    let mut text = String::new();
    for (index, info) in transport.devices().iter().enumerate() {
        writeln!(text, "\n[{index}] {}", describe(info))?;
        match transport.port_reports(index) {
            Ok(reports) => reports.iter().try_for_each(|port| table(&mut text, port))?,
            Err(error) => writeln!(text, "    {error}")?,
        }
    }
    if !transport.left_out().is_empty() {
        writeln!(text, "\nleft out:")?;
    }
    for line in transport.left_out() {
        writeln!(text, "    {line}")?;
    }
    say!("{}", text.trim_end());
    Ok(())
}

fn describe(info: &DeviceInfo) -> String {
    let speed = match info.speed_mbps {
        0 => "unknown speed".to_owned(),
        speed => format!("{} Gb/s", f64::from(speed) / 1000.0),
    };
    let place = match (info.pci_function, info.physical_function) {
        (None, _) => "no PCI device".to_owned(),
        (Some(own), None) => format!("PCI {own}"),
        (Some(own), Some(physical)) => format!("PCI {own}, a virtual function of {physical}"),
    };
    let card = match &info.pci_path {
        Some(path) => format!(
            ", port {} of the card at {}",
            info.port_ordinal,
            path.display()
        ),
        None => String::new(),
    };
    let mut gpu = Vec::new();
    if info.peer_memory {
        gpu.push("peer memory");
    }
    if info.dmabuf {
        gpu.push("DMA-BUF");
    }
    if info.force_flush {
        gpu.push("Data Direct");
    }
    if gpu.is_empty() {
        gpu.push("no");
    }
    let mut placement = String::new();
    for (what, number) in [("rail", info.rail), ("plane", info.plane)] {
        if let Some(number) = number {
            placement += &format!(", {what} {number}");
        }
    }
    format!(
        "{}:{}: {speed}, MTU {}, messages to {} bytes{placement}\n    \
         {place}{card}\n    \
         GUID {:016x}, firmware {}, {} connections, GPU memory: {}",
        info.name,
        info.port,
        info.mtu,
        info.max_message,
        info.guid,
        info.firmware,
        info.max_connections,
        gpu.join(", ")
    )
}

fn table(text: &mut String, port: &PortReport) -> std::fmt::Result {
    write!(text, "    port {}: {}", port.label, port.state)?;
    if port.link_layer == ibnet_verbs::LinkLayer::InfiniBand {
        write!(text, ", InfiniBand, LID {}", port.lid)?;
    } else {
        write!(text, ", Ethernet")?;
    }
    match &port.pkey_index {
        Ok(index) => writeln!(text, ", P_Key index {index}")?,
        Err(error) => writeln!(text, "\n    {error}")?,
    }
    let verdicts = match &port.gid {
        Ok(selection) => &selection.verdicts,
        Err(error) => {
            writeln!(text, "    no GID: {}", error.cause)?;
            &error.verdicts
        }
    };
    for verdict in verdicts {
        let star = if verdict.is_chosen() { '*' } else { ' ' };
        writeln!(text, "    {star} {verdict}")?;
    }
    Ok(())
}
