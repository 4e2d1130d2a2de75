//! [`Stage`]: the one or two devices that a behaviour is observed on.

use std::cell::RefCell;

use ibnet_simverbs::{DeviceSpec, Fabric, PortSpec};
use ibnet_verbs::{Context, Library, Mtu};

use crate::behaviour::{Failure, Place};

/// By which Soft-RoCE says that it is no vendor's (`vendor_id`).
const RXE_VENDOR: u32 = 0xff_ffff;

/// Where behaviours are observed.
pub(crate) enum Devices {
    /// On devices that are simulated, new ones for each behaviour, in one of the two ways to run.
    Simulated { is_stepped: bool },
    /// On devices of this machine.
    Real {
        library: Library,
        /// The first is observed alone.
        names: Vec<String>,
        /// The first pair is observed.
        pairs: Vec<(String, String)>,
    },
}

/// The two devices, or the one that is opened twice, of one observation.
pub(crate) struct Stage {
    pub(crate) contexts: [Context; 2],
    pub(crate) title: String,
    /// Keeps the simulated devices, and knows what was not destroyed.
    fabric: Option<Fabric>,
}

impl Devices {
    /// The devices that `IBNET_TEST_DEVICES` and `IBNET_TEST_PAIRS` name, else simulated ones, of
    /// both kinds.
    pub(crate) fn from_env() -> Result<Vec<Self>, Failure> {
        let list = |name| {
            let text = std::env::var(name).unwrap_or_default();
            let items = text.split(',').map(str::trim);
            let items = items.filter(|item| !item.is_empty());
            items.map(str::to_owned).collect::<Vec<_>>()
        };
        let names = list("IBNET_TEST_DEVICES");
        if names.is_empty() {
            return Ok([false, true]
                .map(|is_stepped| Self::Simulated { is_stepped })
                .into());
        }
        let mut pairs = Vec::new();
        for pair in list("IBNET_TEST_PAIRS") {
            let (one, other) = pair
                .split_once(':')
                .ok_or_else(|| format!("IBNET_TEST_PAIRS: {pair} is not of the form a:b"))?;
            pairs.push((one.to_owned(), other.to_owned()));
        }
        let library = Library::load()?;
        Ok(vec![Self::Real {
            library,
            names,
            pairs,
        }])
    }

    /// The names of the devices for each observation of a behaviour.
    pub(crate) fn stages(&self, place: Place) -> Vec<[String; 2]> {
        let alone = |name: &str| [name.to_owned(), name.to_owned()];
        let (first, pair) = match self {
            Self::Simulated { .. } => ("sim0", Some(["sim0".to_owned(), "sim1".to_owned()])),
            Self::Real { names, pairs, .. } => {
                let pair = pairs
                    .first()
                    .map(|(one, other)| [one.clone(), other.clone()]);
                // `from_env` makes no empty list.
                (names[0].as_str(), pair)
            }
        };
        let pair = pair.filter(|_| place == Place::Connection);
        std::iter::once(alone(first)).chain(pair).collect()
    }

    pub(crate) fn open_named(library: &Library, name: &str) -> Result<Context, Failure> {
        let devices = library.devices()?;
        let device = devices.iter().find(|device| device.name() == name);
        Ok(device.ok_or_else(|| format!("no device {name}"))?.open()?)
    }

    /// Opens the devices of one observation.
    pub(crate) fn open(&self, names: &[String; 2]) -> Result<Stage, Failure> {
        let fabric = match self {
            Self::Simulated { is_stepped } => Some(simulated(*is_stepped)?),
            Self::Real { .. } => None,
        };
        let library = match (self, &fabric) {
            (Self::Real { library, .. }, _) => library.clone(),
            (Self::Simulated { .. }, Some(fabric)) => fabric.library(),
            (Self::Simulated { .. }, None) => return Err("there is no fabric".into()),
        };
        let contexts = [
            Self::open_named(&library, &names[0])?,
            Self::open_named(&library, &names[1])?,
        ];
        let mut title = match names[0] == names[1] {
            true => names[0].clone(),
            false => names.join("-"),
        };
        if matches!(self, Self::Simulated { is_stepped: true }) {
            title += ", stepped";
            STEPPED.set(fabric.clone());
        }
        Ok(Stage {
            contexts,
            title,
            fabric,
        })
    }
}

/// Two adapters whose MTU and longest message are those of Soft-RoCE, so that what depends on them
/// can be observed on both.
fn simulated(is_stepped: bool) -> Result<Fabric, Failure> {
    let port = || {
        PortSpec::roce()
            .mtu(Mtu::MTU_4096, Mtu::MTU_4096)
            .max_message(8 << 20)
    };
    let device = |name: &str| DeviceSpec::roce(name).ports([port()]);
    let fabric = Fabric::builder()
        .device(device("sim0"))
        .device(device("sim1"))
        .sysfs();
    let fabric = if is_stepped {
        fabric.stepped(1)
    } else {
        fabric
    };
    Ok(fabric.build()?)
}

thread_local! {
    /// The fabric of the present observation, if it is stepped.
    static STEPPED: RefCell<Option<Fabric>> = const { RefCell::new(None) };
}

/// Takes a step where nothing happens by itself: whether there was anything to do. None if time
/// passes by itself.
pub(super) fn step() -> Option<bool> {
    STEPPED.with_borrow(|fabric| fabric.as_ref().map(Fabric::step))
}

impl Stage {
    /// The device that behaviours of one device are observed on.
    pub(crate) fn context(&self) -> &Context {
        &self.contexts[0]
    }

    /// Whether the devices are Soft-RoCE's.
    pub(crate) fn is_rxe(&self) -> Result<bool, Failure> {
        Ok(self.context().attributes()?.vendor_id == RXE_VENDOR)
    }

    /// Closes the devices. Fails if something on them was not destroyed, as far as that is known.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let Self {
            contexts, fabric, ..
        } = self;
        drop(contexts);
        STEPPED.take();
        match fabric.map(|fabric| fabric.live_objects()) {
            Some(left) if !left.is_empty() => Err(format!("not destroyed: {left:?}").into()),
            _ => Ok(()),
        }
    }
}
