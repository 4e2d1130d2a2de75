//! [`DeviceSpec`]: a device as the builder is told.

use std::path::PathBuf;

use ibnet_verbs::Ece;

use super::limits::Limits;
use super::port::PortSpec;

/// What kind of context a device opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContextKind {
    /// As libibverbs does today: an `ibv_context` at the end of a `verbs_context` with the
    /// extended `query_port`.
    #[default]
    Extended,
    /// As old libraries do: a bare `ibv_context`, whose `abi_compat` is null. Ports are queried by
    /// the exported function, which fills only the older fields.
    Legacy,
}

/// A device, to be given to [`FabricBuilder::device`](crate::FabricBuilder::device).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    pub(crate) name: String,
    pub(crate) ports: Vec<PortSpec>,
    pub(crate) limits: Limits,
    pub(crate) context: ContextKind,
    pub(crate) guid: Option<u64>,
    pub(crate) system_guid: Option<u64>,
    pub(crate) firmware: String,
    pub(crate) ece: Option<Ece>,
    pub(crate) dmabuf: bool,
    pub(crate) relaxed_ordering: bool,
    pub(crate) keeps_stale_completions: bool,
    pub(crate) reports_established: bool,
    pub(crate) pci: Option<String>,
    pub(crate) physical_function: Option<String>,
    pub(crate) data_direct: Option<String>,
    pub(crate) sysfs_path: Option<PathBuf>,
}

impl DeviceSpec {
    /// A RoCE adapter with one port ([`PortSpec::roce`]).
    pub fn roce(name: impl Into<String>) -> Self {
        Self::new(name.into(), PortSpec::roce())
    }

    /// An InfiniBand adapter with one port ([`PortSpec::infiniband`]).
    pub fn infiniband(name: impl Into<String>) -> Self {
        Self::new(name.into(), PortSpec::infiniband())
    }

    fn new(name: String, port: PortSpec) -> Self {
        Self {
            name,
            ports: vec![port],
            limits: Limits::default(),
            context: ContextKind::default(),
            guid: None,
            system_guid: None,
            firmware: "sim.1.0".to_owned(),
            ece: None,
            dmabuf: true,
            relaxed_ordering: true,
            keeps_stale_completions: false,
            reports_established: true,
            pci: None,
            physical_function: None,
            data_direct: None,
            sysfs_path: None,
        }
    }

    /// Its ports, in order; they count from 1.
    #[must_use]
    pub fn ports(mut self, ports: impl IntoIterator<Item = PortSpec>) -> Self {
        self.ports = ports.into_iter().collect();
        self
    }

    /// Its limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The kind of context that it opens.
    #[must_use]
    pub fn context(mut self, kind: ContextKind) -> Self {
        self.context = kind;
        self
    }

    /// The GUID of the node and that of the whole adapter (the devices of one adapter share it),
    /// in host byte order. If not said they are made up and different for each device.
    #[must_use]
    pub fn guids(mut self, node: u64, system_image: u64) -> Self {
        self.guid = Some(node);
        self.system_guid = Some(system_image);
        self
    }

    /// The version of the firmware, up to 63 bytes.
    #[must_use]
    pub fn firmware(mut self, version: impl Into<String>) -> Self {
        self.firmware = version.into();
        self
    }

    /// The device has options for enhanced connection establishment: these are what a new queue
    /// pair reports. Setting others keeps the options that both have. Without this, the verbs fail
    /// with `EOPNOTSUPP`.
    #[must_use]
    pub fn ece(mut self, ece: Ece) -> Self {
        self.ece = Some(ece);
        self
    }

    /// The kernel or driver cannot register DMA-BUFs: `EOPNOTSUPP`.
    #[must_use]
    pub fn without_dmabuf(mut self) -> Self {
        self.dmabuf = false;
        self
    }

    /// The kernel knows no optional access flags: `ibv_reg_mr_iova2` drops them.
    #[must_use]
    pub fn without_relaxed_ordering(mut self) -> Self {
        self.relaxed_ordering = false;
        self
    }

    /// Completions of a queue pair stay in the completion queues when it is reset or destroyed,
    /// as Soft-RoCE leaves them. If not said they are removed, as mlx5 does. The specification
    /// allows both.
    #[must_use]
    pub fn keeps_stale_completions(mut self) -> Self {
        self.keeps_stale_completions = true;
        self
    }

    /// No `IBV_EVENT_COMM_EST` when a packet reaches a queue pair in RTR. Soft-RoCE has none.
    #[must_use]
    pub fn without_established_events(mut self) -> Self {
        self.reports_established = false;
        self
    }

    /// Its PCI address, for example `0000:3b:00.0`. Takes effect with
    /// [`FabricBuilder::sysfs`](crate::FabricBuilder::sysfs). Without one it is a software device.
    #[must_use]
    pub fn pci(mut self, address: impl Into<String>) -> Self {
        self.pci = Some(address.into());
        self
    }

    /// It is a virtual function of the physical one at this PCI address.
    #[must_use]
    pub fn virtual_function_of(mut self, physical: impl Into<String>) -> Self {
        self.physical_function = Some(physical.into());
        self
    }

    /// It is one of mlx5's with Data Direct, whose second PCI function is at this address: the functions
    /// of libmlx5 know it. Takes effect with [`FabricBuilder::sysfs`](crate::FabricBuilder::sysfs).
    #[must_use]
    pub fn data_direct(mut self, address: impl Into<String>) -> Self {
        self.data_direct = Some(address.into());
        self
    }

    /// Its directory in sysfs (`ibdev_path`), in place of one that is made for the fabric. Nothing
    /// is written there.
    #[must_use]
    pub fn sysfs_path(mut self, path: impl Into<PathBuf>) -> Self {
        self.sysfs_path = Some(path.into());
        self
    }
}
