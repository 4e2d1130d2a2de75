//! Finding the devices: which ports can be used, in which order, and why not the others.

use std::sync::Arc;

use ibnet_verbs::{
    Context, DeviceAttributes, LinkLayer, PortAttributes, PortState, ProtectionDomain,
};

use super::card::Function;
use super::info::DeviceInfo;
use super::port::{self, LocalPort, PortCache};
use super::{Device, gpu_direct, max_message, opening, speed};
use crate::config::{Config, DataDirect, RelaxedOrdering};
use crate::device::registrations::Registrations;
use crate::error::Error;
use crate::events::{Changes, DeviceToken, EventThread};
use crate::wire::stripe;

/// What there is.
pub(crate) struct Found {
    /// At least one. Their order never changes afterwards.
    pub(crate) devices: Vec<Arc<Device>>,
    /// One line for each device or port that is not among them, with the reason.
    pub(crate) left_out: Vec<String>,
}

/// An opened device, and those of its ports that can be used: now, here and with these settings.
struct Opened {
    name: String,
    context: Context,
    pd: ProtectionDomain,
    attributes: DeviceAttributes,
    function: Option<Function>,
    dmabuf: bool,
    changes: Arc<Changes>,
    ports: Vec<(LocalPort, Arc<PortCache>)>,
}

/// What is true of every device of this machine.
struct Machine {
    /// A peer-memory client is loaded.
    peer_memory: bool,
    relaxed_ordering: bool,
}

/// Opens every device of `library` and lists the ports that can be used.
///
/// # Errors
/// [`Error::NoDevices`] with the reason for each device or port that was left out; it is no
/// success to have none.
pub(crate) fn discover(
    library: &ibnet_verbs::Library,
    config: &Config,
    events: &EventThread,
) -> Result<Found, Error> {
    let list = library.devices().map_err(|error| Error::NoDevices {
        reason: error.to_string(),
    })?;
    let mut left_out = Vec::new();
    if let Some(file) = library.file() {
        let names: Vec<&str> = list.iter().map(ibnet_verbs::Device::name).collect();
        left_out = opening::unlisted(&names, file, config);
        for line in &left_out {
            tracing::warn!("left out: {line}");
        }
    }
    // Opened only if it can be used: what is dropped here is closed again.
    let mut opened: Vec<Opened> = list
        .iter()
        .filter_map(|device| open(device, config, &mut left_out))
        .collect();
    if config.pci_order {
        // Stable, so that what has no address keeps the kernel's order, at the end.
        opened.sort_by_key(|device| {
            let address = device.function.as_ref().map(|function| function.address);
            (address.is_none(), address)
        });
    }
    if opened.is_empty() {
        return Err(Error::NoDevices {
            reason: if left_out.is_empty() {
                "libibverbs sees none; is the driver loaded, and is /dev/infiniband there (in \
                 containers it must be passed in)? A limit of open files that is too low looks \
                 the same"
                    .to_owned()
            } else {
                left_out.join("; ")
            },
        });
    }
    let machine = Machine {
        peer_memory: gpu_direct::peer_memory_client(&config.sysfs)
            .inspect(|client| tracing::info!("GPU memory can be registered: {client}"))
            .is_some(),
        relaxed_ordering: relaxed_ordering(library, config.relaxed_ordering),
    };
    let mut devices = Vec::new();
    for device in &opened {
        let token = events.watch_device(&device.context, &device.changes)?;
        devices.extend(ports_of(device, token, &machine, config));
    }
    number(&mut devices);
    Ok(Found {
        devices: devices.into_iter().map(Arc::new).collect(),
        left_out,
    })
}

/// Opens one device. None if no port of it can be used; why is noted.
fn open(
    device: &ibnet_verbs::Device,
    config: &Config,
    left_out: &mut Vec<String>,
) -> Option<Opened> {
    let name = device.name();
    let mut leave_out = |is_fault: bool, reason: String| {
        if is_fault {
            tracing::warn!("left out: {reason}");
        } else {
            tracing::info!("left out: {reason}");
        }
        left_out.push(reason);
    };
    if device.transport() != ibnet_verbs::Transport::InfiniBand {
        // iWARP and the others have no RDMA write with immediate, which carries every message.
        let transport = device.transport();
        leave_out(
            false,
            format!("{name}: it speaks {transport}, not InfiniBand or RoCE"),
        );
        return None;
    }
    if !config.hca.admits_device(name) {
        leave_out(false, format!("{name}: {NOT_WANTED}"));
        return None;
    }
    if let Err(reason) = opening::try_node(name, config) {
        leave_out(true, reason);
        return None;
    }
    let explain = |doing: &str, error: &ibnet_verbs::Error| {
        opening::explain(name, doing, error.errno(), error, config)
    };
    let context = match device.open() {
        Ok(context) => context,
        Err(error) => {
            leave_out(true, explain("opening it", &error));
            return None;
        }
    };
    let attributes = match context.attributes() {
        Ok(attributes) => attributes,
        Err(error) => {
            leave_out(true, explain("asking for its attributes", &error));
            return None;
        }
    };
    let changes = Arc::new(Changes::new(attributes.phys_port_count));
    let mut ports = Vec::new();
    for number in 1..=attributes.phys_port_count {
        let cache = Arc::new(PortCache::new(&context, number, &changes, config));
        match usable(&context, number, &cache, config) {
            Ok(local) => ports.push((local, cache)),
            Err(reason) => leave_out(false, reason),
        }
    }
    if ports.is_empty() {
        return None;
    }
    let pd = match context.allocate_pd() {
        Ok(pd) => pd,
        Err(error) => {
            leave_out(true, explain("allocating a protection domain", &error));
            return None;
        }
    };
    Some(Opened {
        dmabuf: gpu_direct::can_register_dmabuf(&pd),
        pd,
        name: name.to_owned(),
        function: Function::of_device(device.sysfs_path()),
        context,
        attributes,
        changes,
        ports,
    })
}

const NOT_WANTED: &str = "not asked for by `hca`";

/// The state of a port that can be used, with an address and a partition; or the line that says why
/// it cannot: whoever was offered it would fail at the first connection.
fn usable(
    context: &Context,
    port: u8,
    cache: &PortCache,
    config: &Config,
) -> Result<LocalPort, String> {
    let refused = |reason: String| Err(format!("{}:{port}: {reason}", context.device_name()));
    if !config.hca.admits(context.device_name(), port) {
        return refused(NOT_WANTED.to_owned());
    }
    let state = match port::attributes(context, port) {
        Ok(state) => state,
        Err(error) => return refused(error.to_string()),
    };
    if state.state != PortState::ACTIVE {
        return refused(format!("its state is {}", state.state));
    }
    if !matches!(
        state.link_layer,
        LinkLayer::InfiniBand | LinkLayer::Ethernet
    ) {
        return refused(format!("its link layer is {}", state.link_layer));
    }
    if stripe::largest_write(state.max_message_size) == 0 {
        return refused(format!(
            "it allows messages of {} bytes only",
            state.max_message_size
        ));
    }
    cache.local_port().map_err(|error| error.to_string())
}

/// The devices that the ports of `opened` are: one for each, and for each with mlx5's second path to the GPU.
fn ports_of(
    opened: &Opened,
    token: DeviceToken,
    machine: &Machine,
    config: &Config,
) -> Vec<Device> {
    let registrations = Registrations::new();
    let second = data_direct(opened, config);
    let mut devices = Vec::new();
    for (local, cache) in &opened.ports {
        let mut add = |info, data_direct| {
            devices.push(Device {
                info,
                pd: opened.pd.clone(),
                attributes: opened.attributes.clone(),
                token,
                registrations: registrations.clone(),
                data_direct,
                port: Arc::clone(cache),
            });
        };
        let info = describe(opened, local, cache, machine, config);
        if second.is_none() || config.data_direct == DataDirect::Both {
            add(info.clone(), false);
        }
        if let Some(function) = &second {
            let info = DeviceInfo {
                name: format!("{}_dma", info.name),
                pci_path: Some(function.card(config.merge_vfs)),
                pci_function: Some(function.address),
                physical_function: function.physical,
                // What the GPU sees by one path says nothing of what came by the other.
                force_flush: true,
                ..info
            };
            add(info, true);
        }
    }
    devices
}

/// What is known of a port by itself.
fn describe(
    opened: &Opened,
    local: &LocalPort,
    cache: &PortCache,
    machine: &Machine,
    config: &Config,
) -> DeviceInfo {
    let (name, function, attributes) = (&opened.name, &opened.function, &opened.attributes);
    let (port, state) = (cache.port(), &local.port);
    let speed = port_speed(&opened.context, state, cache, config);
    if speed.is_none() {
        tracing::info!(
            "{name}:{port}: the driver reports no known speed (width {}, speed {})",
            state.active_width,
            state.active_speed
        );
    }
    let placement = config.hca.placement(name, port);
    DeviceInfo {
        name: name.clone(),
        port,
        members: Vec::new(),
        link_layer: state.link_layer,
        speed_mbps: speed.unwrap_or(0),
        pci_path: function
            .as_ref()
            .map(|function| function.card(config.merge_vfs)),
        pci_function: function.as_ref().map(|function| function.address),
        physical_function: function.as_ref().and_then(|function| function.physical),
        port_ordinal: 0,
        guid: attributes.sys_image_guid,
        port_guid: match opened.context.gid(port, 0) {
            Ok(gid) if !gid.is_zero() => gid.interface_id(),
            _ => attributes.node_guid,
        },
        rail: placement.rail,
        plane: placement.plane,
        peer_memory: machine.peer_memory,
        dmabuf: opened.dmabuf,
        force_flush: false,
        relaxed_ordering: machine.relaxed_ordering,
        max_connections: attributes.max_qp,
        max_message: max_message(state.max_message_size, attributes.max_qp_wr),
        mtu: state.active_mtu.bytes().unwrap_or(0),
        firmware: attributes.firmware.clone(),
    }
}

fn port_speed(
    context: &Context,
    state: &PortAttributes,
    cache: &PortCache,
    config: &Config,
) -> Option<u32> {
    let effective = if config.query_port_speed {
        context.port_speed(cache.port()).unwrap_or_else(|error| {
            tracing::debug!(%error, "the speed comes from the port's lanes instead");
            None
        })
    } else {
        None
    };
    let interface = match (effective, state.link_layer) {
        // Reading files, only if it can matter.
        (None, LinkLayer::Ethernet) => {
            speed::of_interfaces(&cache.interface_names(), &config.sysfs)
        }
        _ => None,
    };
    speed::decide(effective, state.speed(), interface)
}

/// The function of mlx5's second path to the GPU, if the device has it and it is wanted.
fn data_direct(device: &Opened, config: &Config) -> Option<Function> {
    if config.data_direct == DataDirect::Off {
        return None;
    }
    let path = match device.context.data_direct_path() {
        Ok(path) => path?,
        Err(error) => {
            tracing::warn!(%error, "Data Direct is not used");
            return None;
        }
    };
    if let Err(error) = device.pd.probe_dmabuf_data_direct() {
        tracing::info!(%error, "Data Direct is not used");
        return None;
    }
    // Below the configured root, as everything of sysfs.
    let path = match path.strip_prefix("/sys") {
        Ok(rest) => config.sysfs.join(rest),
        Err(_) => path,
    };
    let function = path
        .canonicalize()
        .ok()
        .and_then(|path| Function::above(&path));
    if function.is_none() {
        tracing::warn!(
            "{}: Data Direct is not used: {} is no PCI function",
            device.name,
            path.display()
        );
    }
    function
}

fn relaxed_ordering(library: &ibnet_verbs::Library, wanted: RelaxedOrdering) -> bool {
    let is_possible = library.supports_optional_access();
    if wanted == RelaxedOrdering::Force && !is_possible {
        tracing::warn!(
            "`relaxed_ordering`=1 has no effect: this libibverbs lacks \
             ibv_reg_mr_iova2 (IBVERBS_1.8)"
        );
    }
    wanted != RelaxedOrdering::Off && is_possible
}

/// Gives each device its index, and its number among the ports of its card.
fn number(devices: &mut [Device]) {
    for index in 0..devices.len() {
        let (before, rest) = devices.split_at_mut(index);
        let info = &mut rest[0].info;
        let shares_card = |other: &&Device| match (&info.pci_path, &other.info.pci_path) {
            (Some(own), Some(other)) => own == other,
            (None, None) => info.guid == other.info.guid,
            _ => false,
        };
        let ordinal = before.iter().filter(shares_card).count();
        info.port_ordinal = u32::try_from(ordinal).unwrap_or(u32::MAX);
        info.members = vec![index];
    }
}
