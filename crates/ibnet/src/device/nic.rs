//! Devices as users and NCCL count them: physical ports, and virtual devices made of several.
//!
//! The list only grows, so that an index means the same device for as long as the transport lives.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::{Device, DeviceInfo};
use crate::error::Error;
use crate::wire::message::{Link, MAX_DEVICES};

/// What NCCL counts as a device: a physical port, or several of them that act as one.
pub(crate) struct Nic {
    members: Vec<Arc<Device>>,
    info: DeviceInfo,
}

impl Nic {
    /// The ports that it is made of: 1 to 8.
    pub(crate) fn members(&self) -> &[Arc<Device>] {
        &self.members
    }

    /// Whether this process is a forked child of the one that opened the devices.
    pub(crate) fn is_inherited(&self) -> bool {
        let mut members = self.members.iter();
        members.any(|member| member.pd.context().is_inherited())
    }

    /// What is known of them together.
    pub(crate) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Their link layer, which is the same for all.
    pub(crate) fn link(&self) -> Link {
        Link::from(self.info.link_layer)
    }
}

/// All devices of a transport: first the physical ones, then virtual ones in the order in which
/// they were made.
pub(crate) struct Nics {
    list: Mutex<Vec<Arc<Nic>>>,
    may_merge: bool,
}

impl Nics {
    /// `devices` and what is known of each, in the order in which they count. `may_merge` allows
    /// virtual devices of more than one member (`merge_nics`).
    pub(crate) fn new(devices: &[Arc<Device>], may_merge: bool) -> Self {
        let list = devices
            .iter()
            .map(|device| {
                Arc::new(Nic {
                    members: vec![Arc::clone(device)],
                    info: device.info.clone(),
                })
            })
            .collect();
        Self {
            list: Mutex::new(list),
            may_merge,
        }
    }

    pub(crate) fn get(&self, index: usize) -> Result<Arc<Nic>, Error> {
        let list = self.lock();
        list.get(index).cloned().ok_or_else(|| {
            Error::InvalidArgument(format!(
                "there is no device {index}; there are {}",
                list.len()
            ))
        })
    }

    pub(crate) fn infos(&self) -> Vec<DeviceInfo> {
        self.lock().iter().map(|nic| nic.info.clone()).collect()
    }

    /// Makes a virtual device of the physical ones `members`; see
    /// [`Transport::merge`](crate::Transport::merge). Nothing is changed unless it succeeds.
    pub(crate) fn merge(&self, members: &[usize]) -> Result<usize, Error> {
        let mut list = self.lock();
        let distinct = check(members, &list, self.may_merge)?;
        if let [single] = distinct[..] {
            return Ok(single);
        }
        let is_same = |nic: &Arc<Nic>| {
            let own = &nic.info.members;
            own.len() == distinct.len() && distinct.iter().all(|member| own.contains(member))
        };
        if let Some(index) = list.iter().position(is_same) {
            return Ok(index);
        }
        let chosen: Vec<&Nic> = distinct.iter().map(|&member| &*list[member]).collect();
        let nic = Nic {
            members: chosen
                .iter()
                .flat_map(|nic| nic.members.iter().cloned())
                .collect(),
            info: combine(&chosen, &labels(&list)),
        };
        note_differences(&nic);
        let index = list.len();
        tracing::info!(
            "[{index}] {} is made of {:?}: {}",
            nic.info.name,
            nic.info.members,
            nic.info.abilities()
        );
        list.push(Arc::new(nic));
        Ok(index)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Nic>>> {
        // No code under this lock leaves the list half changed.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The members without duplicates, if they may become one device.
fn check(members: &[usize], list: &[Arc<Nic>], may_merge: bool) -> Result<Vec<usize>, Error> {
    let refused = |reason: String| Err(Error::Unmergeable { reason });
    let mut distinct: Vec<usize> = Vec::new();
    for &member in members {
        let Some(nic) = list.get(member) else {
            return refused(format!(
                "there is no device {member}; there are {}",
                list.len()
            ));
        };
        if nic.info.is_virtual() {
            return refused(format!(
                "device {member} ({}) is virtual itself; name its members",
                nic.info.name
            ));
        }
        if !distinct.contains(&member) {
            distinct.push(member);
        }
    }
    let Some(&first) = distinct.first() else {
        return refused("a virtual device needs at least one device".to_owned());
    };
    if distinct.len() > MAX_DEVICES {
        return refused(format!(
            "{} devices; at most {MAX_DEVICES} are possible",
            distinct.len()
        ));
    }
    if distinct.len() > 1 && !may_merge {
        return refused("`merge_nics`=0 forbids it".to_owned());
    }
    let link = |member: usize| list[member].info.link_name();
    if let Some(&other) = distinct.iter().find(|&&other| link(other) != link(first)) {
        return refused(format!(
            "[{first}] {} is {} and [{other}] {} is {}; choose devices of one kind with \
             `hca`",
            list[first].info.name,
            link(first),
            list[other].info.name,
            link(other)
        ));
    }
    Ok(distinct)
}

/// What each physical device is called in the name of a virtual one: by its name alone if that
/// says enough.
fn labels(list: &[Arc<Nic>]) -> Vec<String> {
    let physical = || list.iter().map(|nic| &nic.info);
    physical()
        .map(|info| {
            let ports = physical().filter(|other| other.name == info.name);
            if ports.count() > 1 {
                info.label()
            } else {
                info.name.clone()
            }
        })
        .collect()
}

/// What is known of several devices together: what each can do, what one must do.
fn combine(chosen: &[&Nic], labels: &[String]) -> DeviceInfo {
    let infos = || chosen.iter().map(|nic| &nic.info);
    let members: Vec<usize> = infos().flat_map(|info| info.members.clone()).collect();
    let names: Vec<&str> = members
        .iter()
        .map(|&index| labels[index].as_str())
        .collect();
    let first = &chosen[0].info;
    let agreed = |of: fn(&DeviceInfo) -> Option<u8>| {
        of(first).filter(|_| infos().all(|info| of(info) == of(first)))
    };
    let is_speed_known = infos().any(|info| info.speed_mbps != 0);
    let speed = infos().fold(0_u32, |sum, info| {
        sum.saturating_add(info.counted_speed_mbps())
    });
    let least = |of: fn(&DeviceInfo) -> u32| infos().map(of).min().unwrap_or_default();
    DeviceInfo {
        name: names.join("+"),
        speed_mbps: if is_speed_known { speed } else { 0 },
        rail: agreed(|info| info.rail),
        plane: agreed(|info| info.plane),
        peer_memory: infos().all(|info| info.peer_memory),
        dmabuf: infos().all(|info| info.dmabuf),
        relaxed_ordering: infos().all(|info| info.relaxed_ordering),
        force_flush: infos().any(|info| info.force_flush),
        max_connections: least(|info| info.max_connections),
        max_message: infos()
            .map(|info| info.max_message)
            .min()
            .unwrap_or_default(),
        mtu: least(|info| info.mtu),
        members,
        ..first.clone()
    }
}

/// One line if the members are not alike: it works, but at the pace of the slowest.
fn note_differences(nic: &Nic) {
    let differ = |of: &dyn Fn(&Device) -> String| {
        let mut values: Vec<String> = nic.members.iter().map(|member| of(member)).collect();
        let listed = values.join(", ");
        values.dedup();
        (values.len() > 1).then_some(listed)
    };
    let speeds = differ(&|device| match device.info.speed_mbps {
        0 => "unknown".to_owned(),
        speed => format!("{speed} Mb/s"),
    });
    let vendors = differ(&|device| format!("vendor {:#x}", device.attributes.vendor_id));
    let differences: Vec<String> = [speeds, vendors].into_iter().flatten().collect();
    if !differences.is_empty() {
        tracing::warn!(
            "the members of {} differ: {}; it is as slow as the slowest",
            nic.info.name,
            differences.join("; ")
        );
    }
}
